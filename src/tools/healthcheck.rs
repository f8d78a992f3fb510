//! Readiness check of a running server, for supervisors in images without other tools.

use std::time::Duration;

use super::ToolError;
use super::client::{ClientArgs, RequestLimits};
use crate::flags::{ListenAddress, parse_address, parse_path};

/// Enough for the first line of the response.
const LIMITS: RequestLimits = RequestLimits { timeout: Duration::from_secs(5), bytes_max: 64 };

/// Flags of `healthcheck`.
#[derive(Debug, Clone, clap::Args)]
pub struct HealthcheckArgs {
    /// Address and port of the server.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9090", value_parser = parse_address)]
    pub listen_address: ListenAddress,

    /// Path of the server's --web.route-prefix, or the path of its --web.external-url.
    #[arg(long = "web.route-prefix", value_name = "PATH", default_value = "/", value_parser = parse_path)]
    pub route_prefix: String,

    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Returns once a server has responded that it is ready.
pub(super) fn run(args: &HealthcheckArgs) -> Result<(), ToolError> {
    let address = &args.listen_address.0;
    let path = format!("{}/-/ready", args.route_prefix);
    let answer = args.client.get(address, &path, &LIMITS)?;
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(ToolError::NotReady(format!("{address} is not ready: {line:?}"))),
    }
}
