//! Trees of the last queries, because dashboards send the same texts again.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;

use crate::error::QueryError;
use crate::parse::ast::Expr;
use crate::parse::{ParseOptions, is_plain, parse};

/// Number of entries. A query of another text with the same hash replaces an entry.
const ENTRIES: usize = 256;

/// Trees of plain queries (see [`is_plain`]), which are small, by text.
#[derive(Debug)]
pub(super) struct ParsedQueries {
    entries: Mutex<Vec<Option<Entry>>>,
    hasher: RandomState,
}

#[derive(Debug, Clone)]
struct Entry {
    text: Box<str>,
    options: ParseOptions,
    expr: Arc<Expr>,
}

impl ParsedQueries {
    pub(super) fn new() -> ParsedQueries {
        ParsedQueries { entries: Mutex::new(vec![None; ENTRIES]), hasher: RandomState::default() }
    }

    /// Parses and checks a query, or returns the tree of the same text.
    ///
    /// Errors: see [`parse`].
    pub(super) fn parse(
        &self,
        query: &str,
        options: &ParseOptions,
    ) -> Result<Arc<Expr>, QueryError> {
        if !is_plain(query) {
            return parse(query, options).map(Arc::new);
        }
        let index = self.hasher.hash_one(query) as usize % ENTRIES;
        let entries = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = &entries()[index]
            && &*entry.text == query
            && entry.options == *options
        {
            return Ok(Arc::clone(&entry.expr));
        }
        let expr = Arc::new(parse(query, options)?);
        let entry = Entry { text: query.into(), options: *options, expr: Arc::clone(&expr) };
        // The replaced entry is dropped after the lock.
        let _replaced = entries()[index].replace(entry);
        Ok(expr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_parsed_once() {
        let parsed = ParsedQueries::new();
        let of = |query: &str, options: &ParseOptions| parsed.parse(query, options).unwrap();
        let first = of("sum(up)", &ParseOptions::ALL);
        assert!(Arc::ptr_eq(&first, &of("sum(up)", &ParseOptions::ALL)));
        assert!(!Arc::ptr_eq(&first, &of("sum(up)", &ParseOptions::STABLE)));
        assert_eq!(*first, parse("sum(up)", &ParseOptions::ALL).unwrap());
        assert!(parsed.parse("sum(up", &ParseOptions::ALL).is_err());
        // More texts than entries.
        for number in 0..2 * ENTRIES {
            let query = format!("up + {number}");
            assert_eq!(*of(&query, &ParseOptions::ALL), parse(&query, &ParseOptions::ALL).unwrap());
        }
    }
}
