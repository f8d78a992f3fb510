//! Flags of tenants.

use std::sync::Arc;

use axum::http::HeaderName;

use crate::external_labels::check_label;
use crate::tenancy::{Tenancy, TenantTable};

/// Maximum length of the label, in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// Flags of tenants.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TenancyArgs {
    /// HTTP header, and metadata of gRPC, that names the tenant of a request, as in X-Scope-OrgID;
    /// empty turns tenants off. A trusted proxy has to set it, because a client could choose it.
    #[arg(long = "tenancy.header", value_name = "NAME", default_value = "", hide_default_value = true, value_parser = parse_header)]
    pub(crate) header: String,

    /// Label that names the tenant of a series, if tenants are on.
    #[arg(long = "tenancy.label", value_name = "NAME", default_value = "tenant_id", value_parser = parse_label)]
    pub(crate) label: String,

    /// Access to the series of all tenants for calls over gRPC without the header, from a Thanos
    /// Query that enforces tenants; without the flag, such calls are refused.
    #[arg(long = "tenancy.trust-root", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) trusts_root: bool,
}

impl TenancyArgs {
    /// Returns whether tenants are on.
    pub(crate) fn is_on(&self) -> bool {
        !self.header.is_empty()
    }

    /// Returns the settings of tenants, if they are on.
    pub(crate) fn settings(&self, table: Arc<TenantTable>) -> Option<Tenancy> {
        Tenancy::new(&self.header, &self.label, self.trusts_root, table)
    }
}

fn parse_header(text: &str) -> Result<String, String> {
    match HeaderName::try_from(text) {
        Err(_) if !text.is_empty() => Err(format!("{text:?} is not a name of a header")),
        _ => Ok(text.to_owned()),
    }
}

fn parse_label(text: &str) -> Result<String, String> {
    check_label(text, "a")?;
    if text.len() > LABEL_BYTES_MAX {
        return Err(format!("the label has more than {LABEL_BYTES_MAX} bytes"));
    }
    Ok(text.to_owned())
}
