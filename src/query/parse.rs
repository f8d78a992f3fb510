//! Parsing of queries without evaluation.

use std::thread::JoinHandle;

use engine::QueryError;
use engine::parse::ParseOptions;
use engine::parse::ast::Expr;

use super::{Queries, QueryFailure};

impl Queries {
    /// Parses a query on a blocking thread with a stack of its depth, and maps the expression.
    ///
    /// Errors: the timeout; within, those of the parser.
    pub(crate) async fn parse<T: Send + 'static>(
        &self,
        text: String,
        options: ParseOptions,
        map: impl FnOnce(Expr) -> T + Send + 'static,
    ) -> Result<Result<T, QueryError>, QueryFailure> {
        let stack_bytes = engine::stack::stack_bytes(&text);
        let parse = move || engine::parse::parse(&text, &options).map(map);
        let start = move || engine::stack::start(stack_bytes, parse).map(JoinHandle::join);
        match self.compute_blocking(start).await? {
            Ok(Ok(parsed)) => Ok(parsed),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => {
                let message = format!("cannot start a thread: {error}");
                Err(QueryFailure::Engine(QueryError::Source(model::SourceError::Unavailable(
                    message,
                ))))
            }
        }
    }
}
