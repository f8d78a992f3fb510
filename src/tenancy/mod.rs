//! Tenants: users of one server who see only their own series. A label of each series names its
//! tenant; a header of each request does, too.
//!
//! ```text
//! request ── header ──> [`Scope`] in the client ── write: the label is set on each series
//!                                               └─ read: [`source`] adds a matcher of the label
//! ```
//!
//! The header is trusted: a proxy in front of the server has to set it.

mod label;
mod limits;
mod source;
mod usage;

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use model::{MatchOp, Matcher};

pub(crate) use label::label_batch;
pub(crate) use limits::{LimitTable, TenantLimits};
pub(crate) use source::with_tenants;
pub(crate) use usage::{LimitExceeded, QuerySlots, TenantTable, TenantUsage};

/// Maximum length of the name of a tenant, in bytes.
const NAME_BYTES_MAX: usize = 150;
/// Maximum number of tenants that a request names.
const TENANTS_MAX: usize = 100;
/// Separator of tenants in the header.
const SEPARATOR: char = '|';

/// Settings of tenants.
#[derive(Debug, Clone)]
pub(crate) struct Tenancy {
    /// Header that names the tenants of a request.
    header: HeaderName,
    /// Label that names the tenant of a series.
    label: String,
    /// Whether calls over gRPC without the header come from a root that enforces tenants.
    trusts_root: bool,
    table: Arc<TenantTable>,
}

/// Tenants of a request: sorted, each once, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Tenants(Arc<[String]>);

/// Series that a request may read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// Series of tenants.
    Tenants(Tenants),
    /// Series of all tenants: a root has added the matchers.
    Root,
}

/// Label of the tenant on the series of a write.
#[derive(Debug, Clone)]
pub(crate) struct TenantLabel {
    /// Name of the label.
    pub(crate) name: String,
    /// Tenant.
    pub(crate) tenant: String,
    /// Its limits and metrics.
    pub(crate) usage: Arc<TenantUsage>,
}

/// Reason why a request has no valid tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TenantError {
    /// It names none.
    #[error("no tenant: the request has no header {0} (--tenancy.header)")]
    Missing(HeaderName),
    /// It has several values of the header.
    #[error("the request has more than one header {0} (--tenancy.header): send one")]
    Repeated(HeaderName),
    /// A name is invalid.
    #[error("invalid tenant {name:?} in the header {header}: {reason}")]
    Invalid { header: HeaderName, name: String, reason: &'static str },
    /// It names too many.
    #[error("{found} tenants in the header {header}, the limit is {TENANTS_MAX}")]
    TooMany { header: HeaderName, found: usize },
    /// It changes data, and names several.
    #[error("{found} tenants in the header {header}: writes and deletes name one")]
    NotOne { header: HeaderName, found: usize },
}

impl Tenancy {
    /// Returns the settings; `None` without a header, which turns tenants off.
    pub(crate) fn new(
        header: &str,
        label: &str,
        trusts_root: bool,
        table: Arc<TenantTable>,
    ) -> Option<Tenancy> {
        let header = HeaderName::try_from(header).ok()?;
        Some(Tenancy { header, label: label.to_owned(), trusts_root, table })
    }

    /// Header that names the tenants of a request.
    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns the tenants that headers name; `None` if there are none.
    pub(crate) fn tenants(&self, headers: &HeaderMap) -> Result<Option<Tenants>, TenantError> {
        let mut values = headers.get_all(&self.header).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(TenantError::Repeated(self.header.clone()));
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let mut names: Vec<String> = text.split(SEPARATOR).map(str::to_owned).collect();
        for name in &names {
            if let Err(reason) = check_name(name) {
                let name = name.chars().take(NAME_BYTES_MAX).collect();
                return Err(TenantError::Invalid { header: self.header.clone(), name, reason });
            }
        }
        names.sort();
        names.dedup();
        if names.len() > TENANTS_MAX {
            let (header, found) = (self.header.clone(), names.len());
            return Err(TenantError::TooMany { header, found });
        }
        Ok(Some(Tenants(names.into())))
    }

    /// Returns the scope of a call over gRPC; `None` if it has no tenant.
    pub(crate) fn call_scope(&self, headers: &HeaderMap) -> Result<Option<Scope>, TenantError> {
        let root = self.trusts_root.then_some(Scope::Root);
        Ok(self.tenants(headers)?.map(Scope::Tenants).or(root))
    }

    /// Returns the scope of a request.
    ///
    /// Errors: it has none.
    pub(crate) fn scope<'a>(&self, scope: Option<&'a Scope>) -> Result<&'a Scope, TenantError> {
        scope.ok_or_else(|| TenantError::Missing(self.header.clone()))
    }

    /// Returns the tenants of a request.
    ///
    /// Errors: it has none, or comes from a root.
    pub(crate) fn tenants_of<'a>(
        &self,
        scope: Option<&'a Scope>,
    ) -> Result<&'a Tenants, TenantError> {
        match self.scope(scope)? {
            Scope::Tenants(tenants) => Ok(tenants),
            Scope::Root => Err(TenantError::Missing(self.header.clone())),
        }
    }

    /// Returns the only tenant of a request.
    ///
    /// Errors: it has none, or several.
    pub(crate) fn only_tenant<'a>(&self, scope: Option<&'a Scope>) -> Result<&'a str, TenantError> {
        match &*self.tenants_of(scope)?.0 {
            [name] => Ok(name),
            several => {
                let (header, found) = (self.header.clone(), several.len());
                Err(TenantError::NotOne { header, found })
            }
        }
    }

    /// Returns the label of the series of a write.
    ///
    /// Errors: its request has no tenant, or several.
    pub(crate) fn write_label(&self, scope: Option<&Scope>) -> Result<TenantLabel, TenantError> {
        let tenant = self.only_tenant(scope)?.to_owned();
        let usage = self.table.get(&tenant);
        Ok(TenantLabel { name: self.label.clone(), tenant, usage })
    }

    /// Returns the matcher of the series of tenants.
    pub(crate) fn matcher(&self, tenants: &Tenants) -> Matcher {
        match &*tenants.0 {
            [name] => Matcher::equal(&self.label, name),
            names => {
                let escaped: Vec<String> = names.iter().map(|name| escaped(name)).collect();
                Matcher::new(MatchOp::Regex, &self.label, escaped.join("|"))
                    .expect("an alternation of at most 100 short literals compiles")
            }
        }
    }
}

impl Tenants {
    /// Names, sorted.
    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns whether all tenants are among others.
    pub(crate) fn are_among(&self, others: &Tenants) -> bool {
        self.0.iter().all(|name| others.0.binary_search(name).is_ok())
    }
}

impl std::fmt::Display for Tenants {
    /// Writes the tenants as in the header.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            if position > 0 {
                write!(f, "{SEPARATOR}")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Checks the name of a tenant.
///
/// Source: "Restrictions" in Mimir's documentation of tenant ids.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"!-_.*'()".contains(&b);
    match name {
        "" => Err("it is empty"),
        "." | ".." => Err("it is reserved"),
        name if name.len() > NAME_BYTES_MAX => Err("it has more than 150 bytes"),
        name if !name.bytes().all(is_allowed) => {
            Err("it has characters other than letters, digits and !-_.*'()")
        }
        _ => Ok(()),
    }
}

/// Returns a name as a regular expression.
fn escaped(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '.' | '*' | '(' | ')') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn tenancy() -> Tenancy {
        let table = Arc::new(TenantTable::new());
        Tenancy::new("X-Scope-OrgID", "tenant_id", false, table).unwrap()
    }

    fn tenants(text: &str) -> Result<Option<Tenants>, TenantError> {
        let mut headers = HeaderMap::new();
        headers.insert("x-scope-orgid", HeaderValue::from_bytes(text.as_bytes()).unwrap());
        tenancy().tenants(&headers)
    }

    #[test]
    fn names_have_the_rules_of_mimir() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for valid in ["a", "Team-1", "!-_.*'()", "...", longest.as_str()] {
            assert_eq!(tenants(valid).unwrap().unwrap().to_string(), valid);
        }
        let too_long = "a".repeat(NAME_BYTES_MAX + 1);
        for invalid in ["", ".", "..", "a b", "a/b", "a\\b", "é", "a|", "|a", "a||b", &too_long] {
            assert!(matches!(tenants(invalid), Err(TenantError::Invalid { .. })), "{invalid:?}");
        }
    }

    #[test]
    fn several_tenants_are_sorted_and_unique() {
        assert_eq!(tenants("b|a|b").unwrap().unwrap().names(), ["a", "b"]);
        let most: Vec<String> = (0..TENANTS_MAX).map(|i| format!("t{i}")).collect();
        assert_eq!(tenants(&most.join("|")).unwrap().unwrap().names().len(), TENANTS_MAX);
        let more = format!("{}|x", most.join("|"));
        assert!(matches!(tenants(&more), Err(TenantError::TooMany { .. })));
    }

    #[test]
    fn a_repeated_header_is_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(tenancy().tenants(&headers), Ok(None));
        headers.append("x-scope-orgid", HeaderValue::from_static("a"));
        headers.append("x-scope-orgid", HeaderValue::from_static("b"));
        assert!(matches!(tenancy().tenants(&headers), Err(TenantError::Repeated(_))));
    }

    #[test]
    fn matchers_match_the_names_alone() {
        let all = tenants("a|a.b|(c)|d*").unwrap().unwrap();
        let matcher = tenancy().matcher(&all);
        for name in all.names() {
            assert!(matcher.matches(name), "{name}");
        }
        for other in ["", "aab", "axb", "c", "d", "dd", "a|a.b"] {
            assert!(!matcher.matches(other), "{other}");
        }
        let longest: Vec<String> =
            (0..TENANTS_MAX).map(|i| format!("{i:03}{}", "(".repeat(NAME_BYTES_MAX - 3))).collect();
        let longest = tenants(&longest.join("|")).unwrap().unwrap();
        assert!(tenancy().matcher(&longest).matches(&longest.names()[99]));
        let one = tenancy().matcher(&tenants("a.b").unwrap().unwrap());
        assert!(one.matches("a.b") && !one.matches("axb"));
    }
}
