//! Body of a request, which records while the server waits for the client to send more.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::connections::{BodyWait, Tracked};

pub(super) struct Receiving {
    body: Incoming,
    tracked: Tracked,
    wait: Option<BodyWait>,
}

impl Receiving {
    pub(super) fn new(body: Incoming, tracked: Tracked) -> Receiving {
        Receiving { body, tracked, wait: None }
    }
}

impl Body for Receiving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() {
            self.wait = None;
        } else if self.wait.is_none() {
            self.wait = Some(self.tracked.wait_for_body());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
