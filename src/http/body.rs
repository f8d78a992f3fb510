//! Response bodies that are encoded while they are sent.

use std::io;
use std::task::Poll;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures::stream;
use json::pieces::{Pieces, Ready, enclosed};
use json::text::push_texts;

use crate::query::sending::{Answered, IsLong, Sending, SentBody};

/// Bytes that are encoded before they are sent.
const CHUNK_BYTES: usize = 64 << 10;

/// Room for a chunk, which ends with the piece that exceeds [`CHUNK_BYTES`].
const CHUNK_ROOM: usize = CHUNK_BYTES + CHUNK_BYTES / 4;

/// Returns a response with an encoded body.
pub(crate) fn whole(bytes: Vec<u8>, work: impl Answered) -> Response {
    let sending = work.into_sending(bytes.len() as u64);
    if bytes.len() <= CHUNK_BYTES {
        return Response::new(Body::from(sending.finish(bytes)));
    }
    let mut rest = Bytes::from(bytes);
    long(sending, move || {
        let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Returns a response whose chunks are encoded while it is sent.
fn long(sending: Sending, mut next: impl FnMut() -> Option<Bytes> + Send + 'static) -> Response {
    let chunks = stream::poll_fn(move |_| Poll::Ready(next().map(Ok::<Bytes, io::Error>)));
    long_response(sending.start(Box::pin(chunks)), IsLong::EncodedByPolls)
}

fn long_response(body: SentBody, is_long: IsLong) -> Response {
    let mut response = Response::new(Body::from_stream(body));
    response.extensions_mut().insert(is_long);
    response
}

/// Returns a success with short data.
pub(crate) fn success(Ready(data): Ready, warnings: &[String], infos: &[String]) -> Response {
    let body = [HEAD, &data, &tail(warnings, infos)].concat();
    json_response(StatusCode::OK, Body::from(body))
}

/// Returns a success with data, warnings and infos.
pub(crate) fn answer<P: Pieces>(
    data: P,
    work: impl Answered,
    warnings: &[String],
    infos: &[String],
) -> Response {
    let response = streamed(HEAD.to_vec(), data, tail(warnings, infos), work);
    with_type(response, HeaderValue::from_static("application/json"))
}

/// Bytes before the data.
const HEAD: &[u8] = br#"{"status":"success","data":"#;

/// Bytes after the data.
fn tail(warnings: &[String], infos: &[String]) -> Vec<u8> {
    let mut tail = Vec::new();
    for (name, lines) in [("warnings", warnings), ("infos", infos)] {
        if !lines.is_empty() {
            tail.extend_from_slice(format!(",\"{name}\":").as_bytes());
            push_texts(&mut tail, lines);
        }
    }
    tail.push(b'}');
    tail
}

/// Returns a response of a head, pieces and a tail. If it is long, it is encoded while it is sent.
pub(crate) fn streamed<P: Pieces>(
    mut head: Vec<u8>,
    data: P,
    tail: Vec<u8>,
    work: impl Answered,
) -> Response {
    let bytes = data.bytes();
    let data = match data.into_parts() {
        Ok(parts) => {
            let body = work.into_sending(bytes).start_parts(enclosed(head, parts, tail));
            return long_response(body, IsLong::EncodedAhead);
        }
        Err(data) => data,
    };
    head.reserve(bytes.min(CHUNK_ROOM as u64) as usize);
    let mut envelope = Envelope { data, tail, is_finished: false };
    let first = envelope.fill(head);
    if envelope.is_finished {
        return whole(first, work);
    }
    let mut first = Some(first);
    long(work.into_sending(bytes), move || {
        first.take().or_else(|| envelope.next()).map(Bytes::from)
    })
}

/// Returns a response with a JSON body.
pub(crate) fn json_response(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    with_type(response, HeaderValue::from_static("application/json"))
}

/// Sets the content type of the response.
pub(crate) fn with_type(mut response: Response, content_type: HeaderValue) -> Response {
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Data and tail of a response.
struct Envelope<P> {
    data: P,
    tail: Vec<u8>,
    is_finished: bool,
}

impl<P: Pieces> Envelope<P> {
    /// Encodes until the chunk is full or the data ends.
    fn fill(&mut self, mut out: Vec<u8>) -> Vec<u8> {
        while self.data.push_next(&mut out) {
            if out.len() >= CHUNK_BYTES {
                return out;
            }
        }
        out.append(&mut self.tail);
        self.is_finished = true;
        out
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let chunk = || Vec::with_capacity(CHUNK_ROOM);
        (!self.is_finished).then(|| self.fill(chunk()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use json::pieces::ListPieces;
    use json::value::{ValuePieces, encode_value};
    use model::{Labels, MemoryPool, SmolStr};

    use super::*;
    use crate::query::active::{ActiveQueries, Client};
    use crate::query::sending::{Outbox, SendingLimits};
    use crate::tenancy::TenantTable;

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// An outbox of its own, and a response of it.
    fn prepared() -> (Arc<MemoryPool>, Arc<ActiveQueries>, Sending) {
        let pool = Arc::new(MemoryPool::new(u64::MAX));
        let active = Arc::<ActiveQueries>::default();
        let limits = SendingLimits {
            per_client_max: 1,
            bytes_per_client_max: 1,
            bytes_max: 1,
            timeout: Duration::from_secs(3600),
        };
        let outbox = Arc::new(Outbox::new(limits, Arc::clone(&pool), Arc::new(TenantTable::new())));
        let sending = outbox.prepare(active.list("", None, Client::default()), 1000);
        (pool, active, sending)
    }

    fn texts_of(count: usize) -> Vec<SmolStr> {
        (0..count).map(|i| format!("value number {i}").into()).collect()
    }

    #[tokio::test]
    async fn lists_have_brackets_and_commas() {
        for (texts, json) in
            [(vec![], "[]"), (vec!["a"], r#"["a"]"#), (vec!["a", "b"], r#"["a","b"]"#)]
        {
            let texts = texts.into_iter().map(SmolStr::new).collect();
            let response = answer(ListPieces::new(texts), prepared().2, &[], &[]);
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
    async fn a_response_holds_memory_until_it_is_received() {
        for (count, is_long) in [(10, false), (50_000, true)] {
            let (pool, active, sending) = prepared();
            let response = answer(ListPieces::new(texts_of(count)), sending, &[], &[]);
            assert_eq!(pool.bytes() >= 1000, is_long);
            assert!(pool.bytes() > 0);
            assert_eq!(active.visible_to(&Client::default()).len(), usize::from(is_long));
            assert_eq!(response.extensions().get::<IsLong>().is_some(), is_long);
            text(response).await;
            assert_eq!((pool.bytes(), active.visible_to(&Client::default()).len()), (0, 0));
        }
    }

    #[tokio::test]
    async fn a_response_in_parts_is_whole_and_releases_its_memory() {
        let steps = engine::steps::Steps { start_ms: 0, step_ms: 1000, count: 64 };
        let row = engine::result::Row {
            labels: Labels::empty(),
            values: vec![1.5; 64],
            presence: vec![u64::MAX],
            histograms: Vec::new(),
        };
        let output = || engine::QueryOutput {
            value: engine::Value::Grid { steps, rows: vec![row.clone(); 2_000] },
            annotations: engine::Annotations::default(),
            stats: engine::result::QueryStats::default(),
            explained: None,
            step_stats: None,
        };
        let (pool, _, sending) = prepared();
        let response = answer(ValuePieces::new(output(), None), sending, &["w".to_owned()], &[]);
        assert_eq!(response.extensions().get::<IsLong>(), Some(&IsLong::EncodedAhead));
        let data = String::from_utf8(encode_value(output())).unwrap();
        let expected = format!(r#"{{"status":"success","data":{data},"warnings":["w"]}}"#);
        assert!(text(response).await == expected);
        assert_eq!(pool.bytes(), 0);
    }

    /// List that one thread encodes.
    struct Undivided(ListPieces<SmolStr>);

    impl Pieces for Undivided {
        fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
            self.0.push_next(out)
        }

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
    }

    #[tokio::test]
    async fn large_answers_arrive_in_chunks_of_bounded_size() {
        let texts = texts_of(50_000);
        let pieces = || ListPieces::new(texts.clone());
        check_chunks(answer(Undivided(pieces()), prepared().2, &[], &[]), &texts, 2 * CHUNK_BYTES)
            .await;
        check_chunks(answer(pieces(), prepared().2, &[], &[]), &texts, 6 * CHUNK_BYTES).await;
    }

    async fn check_chunks(response: Response, texts: &[SmolStr], bytes_max: usize) {
        let chunks: Vec<_> =
            futures::StreamExt::collect(response.into_body().into_data_stream()).await;
        let chunks: Vec<Bytes> = chunks.into_iter().map(Result::unwrap).collect();
        assert!(chunks.len() > 1);
        assert!(chunks.iter().all(|chunk| chunk.len() < bytes_max));
        let read: serde_json::Value = serde_json::from_slice(&chunks.concat()).unwrap();
        assert_eq!(
            read["data"],
            serde_json::json!(texts.iter().map(SmolStr::as_str).collect::<Vec<_>>())
        );
    }
}
