//! Response bodies that are encoded while they are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures::Stream;
use model::Labels;

use super::text::{push_labels, push_text, push_texts};

/// How many bytes are encoded before they are handed to the connection.
const CHUNK_BYTES: usize = 64 << 10;

/// Something that is written piece by piece.
pub(crate) trait Pieces: Send + 'static {
    /// Appends the next piece, of bounded size; `false` once there is none left.
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool;
}

/// A list of texts.
pub(crate) struct TextPieces(std::vec::IntoIter<String>, bool);

impl TextPieces {
    pub(crate) fn new(texts: Vec<String>) -> TextPieces {
        TextPieces(texts.into_iter(), false)
    }
}

impl Pieces for TextPieces {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        push_item(&mut self.1, self.0.next(), out, |out, text| push_text(out, text))
    }
}

/// A list of label sets.
pub(crate) struct LabelsPieces(std::vec::IntoIter<Labels>, bool);

impl LabelsPieces {
    pub(crate) fn new(series: Vec<Labels>) -> LabelsPieces {
        LabelsPieces(series.into_iter(), false)
    }
}

impl Pieces for LabelsPieces {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        push_item(&mut self.1, self.0.next(), out, push_labels)
    }
}

/// Pieces that keep something until the last of them is sent, such as a place at the gate.
pub(crate) struct Holding<P, T>(pub(crate) P, pub(crate) T);

impl<P: Pieces, T: Send + 'static> Pieces for Holding<P, T> {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        self.0.push_next(out)
    }
}

/// JSON that stands already.
pub(crate) struct Ready(pub(crate) Vec<u8>);

impl Pieces for Ready {
    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        out.append(&mut self.0);
        false
    }
}

/// A body that stands already, and keeps something until it is sent.
pub(crate) fn holding(bytes: Vec<u8>, held: impl Send + 'static) -> Body {
    let mut held = Some(held);
    let whole = futures::stream::iter([Ok::<Bytes, Infallible>(Bytes::from(bytes))]);
    let end = futures::stream::poll_fn(move |_| {
        drop(held.take());
        Poll::Ready(None)
    });
    Body::from_stream(futures::StreamExt::chain(whole, end))
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

/// Answers with success, the data, and what is to be said about it.
pub(crate) fn success<P: Pieces>(data: P, warnings: &[String], infos: &[String]) -> Response {
    let mut tail = Vec::new();
    for (name, lines) in [("warnings", warnings), ("infos", infos)] {
        if !lines.is_empty() {
            tail.extend_from_slice(format!(",\"{name}\":").as_bytes());
            push_texts(&mut tail, lines);
        }
    }
    tail.push(b'}');
    let first = br#"{"status":"success","data":"#.to_vec();
    json_response(StatusCode::OK, streamed(first, data, tail))
}

/// A body of pieces, with what stands before and behind them, that is encoded while it is sent.
pub(crate) fn streamed<P: Pieces>(mut first: Vec<u8>, data: P, tail: Vec<u8>) -> Body {
    let mut envelope = Envelope { data, tail, state: State::Data };
    match envelope.fill(&mut first) {
        Fill::Finished => Body::from(first),
        Fill::More => {
            let first = futures::stream::iter([Ok::<Bytes, Infallible>(Bytes::from(first))]);
            Body::from_stream(futures::StreamExt::chain(first, envelope))
        }
    }
}

/// A response whose body is JSON.
pub(crate) fn json_response(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The data and what follows it.
struct Envelope<P> {
    data: P,
    tail: Vec<u8>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Data,
    Finished,
}

#[derive(PartialEq, Eq)]
enum Fill {
    More,
    Finished,
}

impl<P: Pieces> Envelope<P> {
    /// Writes until the chunk is full or nothing is left.
    fn fill(&mut self, out: &mut Vec<u8>) -> Fill {
        while self.data.push_next(out) {
            if out.len() >= CHUNK_BYTES {
                return Fill::More;
            }
        }
        out.append(&mut self.tail);
        self.state = State::Finished;
        Fill::Finished
    }
}

// Nothing in it is ever pinned in place.
impl<P> Unpin for Envelope<P> {}

impl<P: Pieces> Stream for Envelope<P> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.state == State::Finished {
            return Poll::Ready(None);
        }
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        self.fill(&mut chunk);
        Poll::Ready(Some(Ok(Bytes::from(chunk))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn lists_have_brackets_and_commas() {
        for (texts, json) in
            [(vec![], "[]"), (vec!["a"], r#"["a"]"#), (vec!["a", "b"], r#"["a","b"]"#)]
        {
            let texts = texts.into_iter().map(str::to_owned).collect();
            let response = success(TextPieces::new(texts), &[], &[]);
            assert_eq!(text(response).await, format!(r#"{{"status":"success","data":{json}}}"#));
        }
    }

    #[tokio::test]
    async fn annotations_follow_the_data() {
        let response = success(Ready(b"{}".to_vec()), &["w".to_owned()], &["i".to_owned()]);
        assert_eq!(
            text(response).await,
            r#"{"status":"success","data":{},"warnings":["w"],"infos":["i"]}"#
        );
    }

    #[tokio::test]
    async fn what_is_held_is_held_as_long_as_something_is_to_be_sent() {
        for (count, is_held) in [(10, false), (50_000, true)] {
            let texts = (0..count).map(|i| format!("value number {i}")).collect();
            let place = std::sync::Arc::new(());
            let pieces = Holding(TextPieces::new(texts), std::sync::Arc::clone(&place));
            let response = success(pieces, &[], &[]);
            assert_eq!(std::sync::Arc::strong_count(&place) > 1, is_held);
            text(response).await;
            assert_eq!(std::sync::Arc::strong_count(&place), 1);
        }
    }

    #[tokio::test]
    async fn large_answers_arrive_in_chunks_of_bounded_size() {
        let texts: Vec<String> = (0..50_000).map(|i| format!("value number {i}")).collect();
        let response = success(TextPieces::new(texts.clone()), &[], &[]);
        let chunks: Vec<_> =
            futures::StreamExt::collect(response.into_body().into_data_stream()).await;
        let chunks: Vec<Bytes> = chunks.into_iter().map(Result::unwrap).collect();
        assert!(chunks.len() > 10);
        assert!(chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK_BYTES));
        let read: serde_json::Value = serde_json::from_slice(&chunks.concat()).unwrap();
        assert_eq!(read["data"], serde_json::json!(texts));
    }
}
