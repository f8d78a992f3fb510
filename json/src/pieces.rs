//! Values that are encoded piece by piece, so that a response needs no buffer of its own length.

use model::{Labels, SmolStr};

use crate::text::{push_labels, push_text};

/// Encodes a part.
pub type Part = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Parts in order, each of bounded size.
pub type Parts = Box<dyn Iterator<Item = Part> + Send>;

/// Value that is encoded piece by piece.
pub trait Pieces: Send + 'static {
    /// Appends the next piece, of bounded size. Returns `false` after the last one.
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool;

    /// Returns the bytes that the pieces hold before any is written, about.
    fn bytes(&self) -> u64;

    /// Splits the pieces that are left into parts, if several threads can encode them.
    fn into_parts(self) -> Result<Parts, Self>
    where
        Self: Sized,
    {
        Err(self)
    }
}

/// List of texts.
pub struct TextPieces(std::vec::IntoIter<SmolStr>, bool);

impl TextPieces {
    /// Returns the pieces of texts.
    pub fn new(texts: Vec<SmolStr>) -> TextPieces {
        TextPieces(texts.into_iter(), false)
    }
}

impl Pieces for TextPieces {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        push_item(&mut self.1, self.0.next(), out, |out, text| push_text(out, text))
    }

    fn bytes(&self) -> u64 {
        let heap_bytes = |text: &SmolStr| if text.is_heap_allocated() { text.len() } else { 0 };
        let bytes = |text: &SmolStr| (size_of::<SmolStr>() + heap_bytes(text)) as u64;
        self.0.as_slice().iter().map(bytes).sum()
    }
}

/// List of label sets.
pub struct LabelsPieces(std::vec::IntoIter<Labels>, bool);

impl LabelsPieces {
    /// Returns the pieces of label sets.
    pub fn new(series: Vec<Labels>) -> LabelsPieces {
        LabelsPieces(series.into_iter(), false)
    }
}

impl Pieces for LabelsPieces {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        push_item(&mut self.1, self.0.next(), out, push_labels)
    }

    fn bytes(&self) -> u64 {
        let bytes = |labels: &Labels| (size_of::<Labels>() + labels.as_bytes().len()) as u64;
        self.0.as_slice().iter().map(bytes).sum()
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

/// Writes one item of a list with the bracket or comma before it, and the last bracket.
fn push_item<T>(
    has_begun: &mut bool,
    item: Option<T>,
    out: &mut Vec<u8>,
    push: impl Fn(&mut Vec<u8>, &T),
) -> bool {
    if !*has_begun {
        out.push(b'[');
    } else if item.is_some() {
        out.push(b',');
    }
    *has_begun = true;
    match item {
        Some(item) => {
            push(out, &item);
            true
        }
        None => {
            out.push(b']');
            false
        }
    }
}
