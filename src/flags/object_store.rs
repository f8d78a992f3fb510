//! Flags of object stores. Secrets are not flags, because other users see command lines.

use std::path::PathBuf;

use clap::ArgAction;
use storage::{AzureOptions, GcsOptions, RemoteOptions, S3Options};

/// Access to object stores. Settings without a flag come from the configuration file, else from the
/// environment.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ObjectStoreArgs {
    /// URL of the S3 server, for s3:// stores that are not on AWS.
    #[arg(long = "storage.s3.endpoint", value_name = "URL")]
    pub(crate) s3_endpoint: Option<String>,

    /// Region of the S3 bucket.
    #[arg(long = "storage.s3.region", value_name = "REGION")]
    pub(crate) s3_region: Option<String>,

    /// Bucket in the path of S3 requests; false puts it before the server's name.
    #[arg(long = "storage.s3.path-style", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) s3_path_style: Option<bool>,

    /// Access to the S3 server without TLS.
    #[arg(long = "storage.s3.allow-http", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) s3_allow_http: Option<bool>,

    /// URL of the server, for gs:// stores that are not on Google Cloud Storage.
    #[arg(long = "storage.gcs.endpoint", value_name = "URL")]
    pub(crate) gcs_endpoint: Option<String>,

    /// File with the key of the Google service account, as JSON.
    #[arg(long = "storage.gcs.service-account-file", value_name = "PATH")]
    pub(crate) gcs_service_account_file: Option<PathBuf>,

    /// URL of the server, for az:// stores that are not on Azure Blob Storage.
    #[arg(long = "storage.azure.endpoint", value_name = "URL")]
    pub(crate) azure_endpoint: Option<String>,

    /// Azure storage account of the container.
    #[arg(long = "storage.azure.account", value_name = "NAME")]
    pub(crate) azure_account: Option<String>,

    /// Access to the Azure server without TLS.
    #[arg(long = "storage.azure.allow-http", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) azure_allow_http: Option<bool>,
}

impl ObjectStoreArgs {
    /// Returns the flags, completed by the configuration file.
    pub(crate) fn over(&self, file: RemoteOptions) -> RemoteOptions {
        let RemoteOptions { s3, gcs, azure } = file;
        let path = |path: &PathBuf| path.display().to_string();
        RemoteOptions {
            s3: S3Options {
                endpoint: self.s3_endpoint.clone().or(s3.endpoint),
                region: self.s3_region.clone().or(s3.region),
                is_path_style: self.s3_path_style.or(s3.is_path_style),
                allow_http: self.s3_allow_http.or(s3.allow_http),
                ..s3
            },
            gcs: GcsOptions {
                endpoint: self.gcs_endpoint.clone().or(gcs.endpoint),
                service_account_file: self
                    .gcs_service_account_file
                    .as_ref()
                    .map(path)
                    .or(gcs.service_account_file),
                ..gcs
            },
            azure: AzureOptions {
                endpoint: self.azure_endpoint.clone().or(azure.endpoint),
                account: self.azure_account.clone().or(azure.account),
                allow_http: self.azure_allow_http.or(azure.allow_http),
                ..azure
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_count_more_than_the_file() {
        let file = RemoteOptions {
            s3: S3Options {
                endpoint: Some("https://file".to_owned()),
                region: Some("file".to_owned()),
                access_key_id: Some("key".to_owned()),
                ..S3Options::default()
            },
            ..RemoteOptions::default()
        };
        let flags = ObjectStoreArgs {
            s3_endpoint: Some("https://flag".to_owned()),
            s3_path_style: Some(false),
            ..ObjectStoreArgs::default()
        };
        let s3 = flags.over(file).s3;
        assert_eq!(s3.endpoint.as_deref(), Some("https://flag"));
        assert_eq!(s3.region.as_deref(), Some("file"));
        assert_eq!(s3.access_key_id.as_deref(), Some("key"));
        assert_eq!((s3.is_path_style, s3.allow_http), (Some(false), None));
    }
}
