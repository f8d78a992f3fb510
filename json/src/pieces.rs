//! Values that are encoded piece by piece, so that a response needs no buffer of its own length.

use std::sync::Arc;

use model::{Labels, SmolStr};

use crate::text::{push_labels, push_text};

/// Maximum length of a part, about; a single item may be longer.
const PART_BYTES_MAX: usize = 320 << 10;
/// Maximum length of a part of a short value: for less, another thread does not pay.
const PART_BYTES_MIN: usize = 128 << 10;
/// Minimum number of parts of a value, unless they would be shorter.
const PARTS_MIN: usize = 4;

/// Function that appends the text of a part.
pub type Part = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// Parts in order, each of bounded size; at least one.
pub type Parts = Box<dyn Iterator<Item = Part> + Send>;

/// Returns the parts with bytes before the first one and after the last one.
pub fn enclosed(mut head: Vec<u8>, parts: Parts, mut tail: Vec<u8>) -> Parts {
    let mut parts = parts.peekable();
    Box::new(std::iter::from_fn(move || {
        let part = parts.next()?;
        let head = std::mem::take(&mut head);
        let is_last = parts.peek().is_none();
        let tail = if is_last { std::mem::take(&mut tail) } else { Vec::new() };
        Some(Box::new(move |out: &mut Vec<u8>| {
            out.extend_from_slice(&head);
            part(out);
            out.extend_from_slice(&tail);
        }) as Part)
    }))
}

/// Items of a value, which threads can encode independently.
pub(crate) trait Items: Send + Sync + 'static {
    /// Returns the number of items.
    fn count(&self) -> usize;

    /// Returns the length of an item's text, about.
    fn text_bytes(&self, index: usize) -> usize;

    /// Appends an item, and the comma before it unless it is the first one.
    fn encode(&self, index: usize, out: &mut Vec<u8>);
}

/// Returns the parts of all items.
///
/// Errors: the items, if they would be one part.
pub(crate) fn parts_of<I: Items>(items: I) -> Result<Parts, I> {
    let part_bytes = part_bytes(&items);
    if part_end(&items, 0, part_bytes) == items.count() {
        return Err(items);
    }
    let items = Arc::new(items);
    let mut first = 0;
    Ok(Box::new(std::iter::from_fn(move || {
        let range = first..part_end(&*items, first, part_bytes);
        first = range.end;
        let items = Arc::clone(&items);
        (!range.is_empty()).then(|| {
            Box::new(move |out: &mut Vec<u8>| {
                out.reserve(range.clone().map(|index| items.text_bytes(index)).sum());
                range.for_each(|index| items.encode(index, out));
            }) as Part
        })
    })))
}

/// Returns the maximum length of the parts of some items, about.
fn part_bytes(items: &impl Items) -> usize {
    let (mut bytes, mut index) = (0, 0);
    // The rest does not change the result: there may be millions of items.
    while index < items.count() && bytes < PARTS_MIN * PART_BYTES_MAX {
        bytes += items.text_bytes(index);
        index += 1;
    }
    bytes.div_ceil(PARTS_MIN).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
}

/// Returns the end of the part that begins with an item: as many items as have `part_bytes`
/// together, and at least one unless there are no more.
fn part_end(items: &impl Items, first: usize, part_bytes: usize) -> usize {
    let mut bytes = 0;
    let fits = |index: &usize| {
        bytes += items.text_bytes(*index);
        bytes <= part_bytes
    };
    let count = (first..items.count()).take_while(fits).count();
    (first + count.max(1)).min(items.count())
}

/// Returns the length of the text of labels, about.
pub(crate) fn labels_text_bytes(labels: &Labels) -> usize {
    16 + labels.as_bytes().len() * 3 / 2
}

/// Value that is encoded piece by piece.
pub trait Pieces: Send + 'static {
    /// Appends the next piece, of bounded size. Returns `false` after the last one.
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool;

    /// Returns the bytes that the pieces hold before any is written, about.
    fn bytes(&self) -> u64;

    /// Splits the pieces into parts, if several threads encode them faster.
    ///
    /// Panics: if a piece was written.
    fn into_parts(self) -> Result<Parts, Self>
    where
        Self: Sized,
    {
        Err(self)
    }
}

/// Item of a list.
pub trait ListItem: Send + Sync + 'static {
    /// Appends the item.
    fn encode(&self, out: &mut Vec<u8>);

    /// Returns the bytes of the item in memory.
    fn bytes(&self) -> usize;

    /// Returns the length of the item's text, about.
    fn text_bytes(&self) -> usize;
}

impl ListItem for SmolStr {
    fn encode(&self, out: &mut Vec<u8>) {
        push_text(out, self);
    }

    fn bytes(&self) -> usize {
        size_of::<SmolStr>() + if self.is_heap_allocated() { self.len() } else { 0 }
    }

    fn text_bytes(&self) -> usize {
        self.len() + r#""","#.len()
    }
}

impl ListItem for Labels {
    fn encode(&self, out: &mut Vec<u8>) {
        push_labels(out, self);
    }

    fn bytes(&self) -> usize {
        size_of::<Labels>() + self.as_bytes().len()
    }

    fn text_bytes(&self) -> usize {
        labels_text_bytes(self)
    }
}

impl<T: ListItem> Items for Vec<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn text_bytes(&self, index: usize) -> usize {
        self[index].text_bytes()
    }

    fn encode(&self, index: usize, out: &mut Vec<u8>) {
        if index > 0 {
            out.push(b',');
        }
        self[index].encode(out);
    }
}

/// List of texts or label sets.
pub struct ListPieces<T> {
    items: Vec<T>,
    next_index: usize,
}

impl<T: ListItem> ListPieces<T> {
    /// Returns the pieces of a list.
    pub fn new(items: Vec<T>) -> ListPieces<T> {
        ListPieces { items, next_index: 0 }
    }
}

impl<T: ListItem> Pieces for ListPieces<T> {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.next_index == 0 {
            out.push(b'[');
        }
        let is_more = self.next_index < self.items.len();
        if is_more {
            self.items.encode(self.next_index, out);
            self.next_index += 1;
        } else {
            out.push(b']');
        }
        is_more
    }

    fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes() as u64).sum()
    }

    fn into_parts(self) -> Result<Parts, Self> {
        assert_eq!(self.next_index, 0, "pieces were written");
        let parts = parts_of(self.items).map_err(ListPieces::new)?;
        Ok(enclosed(b"[".to_vec(), parts, b"]".to_vec()))
    }
}

/// Encoded JSON.
pub struct Ready(pub Vec<u8>);

impl Pieces for Ready {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        out.append(&mut self.0);
        false
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lengths(Vec<usize>);

    impl Items for Lengths {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn text_bytes(&self, index: usize) -> usize {
            self.0[index]
        }

        fn encode(&self, index: usize, out: &mut Vec<u8>) {
            Vec::push(out, index as u8);
        }
    }

    /// Asserts the first items of all parts but the first one; none if there are no parts.
    fn check(lengths: &[usize], firsts: &[u8]) {
        let mut found = Vec::new();
        let mut all: Vec<u8> = Vec::new();
        if let Ok(parts) = parts_of(Lengths(lengths.to_vec())) {
            assert!(!firsts.is_empty(), "it has parts");
            for part in parts {
                let at = all.len();
                part(&mut all);
                found.push(all[at]);
            }
            assert_eq!(all, (0..lengths.len() as u8).collect::<Vec<_>>());
            assert_eq!(found.remove(0), 0);
        }
        assert_eq!(found, firsts);
    }

    #[test]
    fn parts_have_as_many_items_as_fit() {
        let (min, max) = (PART_BYTES_MIN, PART_BYTES_MAX);
        check(&[], &[]);
        check(&[min], &[]);
        check(&[9 * max], &[]);
        check(&vec![min / 100; 100], &[]);
        check(&[min, 1], &[1]);
        check(&[min, min, min, min], &[1, 2, 3]);
        // Short values have at least four parts, and long ones parts of the maximum length.
        check(&[min / 2; 10], &[2, 4, 6, 8]);
        check(&[min / 2; 12], &[3, 6, 9]);
        check(&[max / 4; 30], &[4, 8, 12, 16, 20, 24, 28]);
        check(&[0, 9 * max, max - 1, 1, max / 2, max / 2, 0, 1], &[1, 2, 4, 7]);
    }

    #[test]
    fn lists_are_the_same_in_pieces_and_in_parts() {
        for count in [0, 1, 2, PART_BYTES_MIN] {
            let texts = || (0..count).map(|i| SmolStr::from(i.to_string())).collect::<Vec<_>>();
            let expected =
                serde_json::json!(texts().iter().map(SmolStr::as_str).collect::<Vec<_>>())
                    .to_string();
            let (mut pieces, mut text) = (ListPieces::new(texts()), Vec::new());
            while pieces.push_next(&mut text) {}
            assert!(text == expected.as_bytes());
            match ListPieces::new(texts()).into_parts() {
                Ok(parts) => {
                    let mut text = Vec::new();
                    parts.for_each(|part| part(&mut text));
                    assert!(text == expected.as_bytes());
                }
                Err(mut pieces) => {
                    assert!(count < PART_BYTES_MIN);
                    let mut text = Vec::new();
                    while pieces.push_next(&mut text) {}
                    assert!(text == expected.as_bytes());
                }
            }
        }
    }
}
