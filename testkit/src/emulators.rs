//! Emulators of Google Cloud Storage and Azure Blob Storage on loopback, for the duration of a
//! test.
//!
//! `FAKE_GCS_SERVER_BINARY` and `AZURITE_BINARY` are their paths; `.ci/run` installs both.

use std::process::Command;

use crate::process::{Child, TemporaryDirectory, free_port, spawn_listening, temporary_directory};
use crate::s3::{BUCKET, named};

/// Account of Azurite and its key, which are well-known.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// An emulator with an empty bucket.
pub struct Emulator {
    /// URL of the bucket.
    pub url: String,
    /// Environment variables with which Tessella reaches it.
    pub variables: Vec<(&'static str, String)>,
    _child: Child,
    _folder: TemporaryDirectory,
}

impl Emulator {
    /// Starts Azurite in memory; `None`, with a message, if it is not installed.
    pub fn azurite(name: &str) -> Option<Emulator> {
        let binary = named("AZURITE_BINARY")?;
        let folder = temporary_directory(&format!("azurite-{name}"));
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(binary);
        command
            .args(["--silent", "--inMemoryPersistence", "--skipApiVersionCheck"])
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
            .current_dir(folder.path());
        let child = spawn_listening(&mut command, &address);
        let endpoint = format!("http://{address}/{AZURITE_ACCOUNT}");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/create_container.mjs");
        let args = [script, &endpoint, AZURITE_ACCOUNT, AZURITE_KEY, BUCKET];
        assert!(Command::new("node").args(args).status().expect("node can be started").success());
        let variables = vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY.to_owned()),
            ("AZURE_STORAGE_ENDPOINT", endpoint),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
        ];
        Some(Emulator { url: format!("az://{BUCKET}"), variables, _child: child, _folder: folder })
    }

    /// Starts fake-gcs-server in memory; `None`, with a message, if it is not installed.
    pub fn fake_gcs(name: &str) -> Option<Emulator> {
        let binary = named("FAKE_GCS_SERVER_BINARY")?;
        let folder = temporary_directory(&format!("fake-gcs-{name}"));
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(binary);
        command.args([&address, BUCKET]).current_dir(folder.path());
        let child = spawn_listening(&mut command, &address);
        let endpoint = format!("http://{address}");
        let key = format!(
            r#"{{"gcs_base_url": "{endpoint}", "disable_oauth": true, "client_email": "",
                 "private_key": "", "private_key_id": ""}}"#
        );
        let variables = vec![("GOOGLE_BASE_URL", endpoint), ("GOOGLE_SERVICE_ACCOUNT_KEY", key)];
        Some(Emulator { url: format!("gs://{BUCKET}"), variables, _child: child, _folder: folder })
    }
}
