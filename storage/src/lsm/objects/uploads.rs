//! Unfinished multipart uploads: an S3 server keeps their parts, and charges for them, until they
//! are aborted. Listings of objects do not show them.
//!
//! The client can start, complete and abort uploads, but not list them. This request is sent here:
//! the client signs its URL, and it uses the client's connections with all their settings. On
//! Google Cloud Storage, a lifecycle rule of the bucket has to abort uploads; Azure Blob Storage
//! drops parts after a week.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use futures::StreamExt;
use http::{Method, Request};
use serde::Deserialize;
use slatedb::object_store::aws::{AmazonS3, AmazonS3Builder};
use slatedb::object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpRequestBody, ReqwestConnector,
};
use slatedb::object_store::multipart::MultipartStore;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::signer::{SignedUrlOptions, Signer};

/// Maximum number of uploads; further ones are left to later starts.
const UPLOADS_MAX: usize = 10_000;
/// Timeout for one request, and lifetime of its URL.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const URL_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum length of a response: 1000 uploads take less than 1 MiB.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Unfinished upload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Upload {
    pub(crate) path: ObjectPath,
    pub(crate) id: String,
}

/// Object store that keeps parts of uploads.
#[async_trait]
pub(crate) trait Uploads: Debug + Send + Sync {
    /// Lists the uploads below a folder.
    ///
    /// Errors: the reason as text.
    async fn list(&self, folder: &ObjectPath) -> Result<Vec<Upload>, String>;

    /// Aborts an upload.
    async fn abort(&self, upload: &Upload) -> slatedb::object_store::Result<()>;
}

/// Default connector that remembers its last client.
#[derive(Debug, Clone, Default)]
struct Connector {
    last: Arc<Mutex<Option<HttpClient>>>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> slatedb::object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

/// Uploads of a bucket.
#[derive(Debug)]
pub(in crate::lsm) struct S3Uploads {
    objects: Arc<AmazonS3>,
    client: HttpClient,
}

impl S3Uploads {
    /// Builds the client of a bucket, and of its uploads.
    pub(in crate::lsm) fn build(
        builder: AmazonS3Builder,
    ) -> slatedb::object_store::Result<(Arc<AmazonS3>, S3Uploads)> {
        let connector = Connector::default();
        let objects = Arc::new(builder.with_http_connector(connector.clone()).build()?);
        // Earlier clients are for providers of credentials.
        let last = connector.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let client = last.expect("a client has connections");
        Ok((Arc::clone(&objects), S3Uploads { objects, client }))
    }

    /// Returns one page of uploads.
    async fn page(&self, folder: &ObjectPath, from: &Mark) -> Result<Page, String> {
        let query = [
            ("uploads", ""),
            ("prefix", &format!("{folder}/")),
            ("key-marker", &from.key),
            ("upload-id-marker", &from.id),
        ];
        // Empty markers are left out.
        let query =
            query.into_iter().filter(|(name, value)| *name == "uploads" || !value.is_empty());
        let options = SignedUrlOptions::new().with_query(query);
        let bucket = ObjectPath::default();
        let signing = self.objects.signed_url_opts(Method::GET, &bucket, URL_LIFETIME, &options);
        let url = signing.await.map_err(|error| error.to_string())?;
        let request = Request::get(url.as_str()).body(HttpRequestBody::empty());
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.execute(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let mut chunks = answer.into_body().bytes_stream();
        let mut body = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk.map_err(|error| error.to_string())?);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(format!("the response has more than {ANSWER_BYTES_MAX} bytes"));
            }
        }
        match status.as_u16() {
            200 => Page::parse(&body),
            403 => Err(format!(
                "the response is {status}: the key needs the permission s3:ListBucketMultipartUploads"
            )),
            _ => Err(format!("the response is {status}")),
        }
    }
}

#[async_trait]
impl Uploads for S3Uploads {
    async fn list(&self, folder: &ObjectPath) -> Result<Vec<Upload>, String> {
        let (mut uploads, mut from) = (Vec::new(), Mark::default());
        loop {
            let page = tokio::time::timeout(REQUEST_TIMEOUT, self.page(folder, &from)).await;
            let page = page.map_err(|_| format!("no response within {REQUEST_TIMEOUT:?}"))??;
            uploads.extend(page.uploads().filter(|found| found.path.prefix_matches(folder)));
            match page.next() {
                // Ends the loop if the marker does not advance.
                Some(next) if uploads.len() < UPLOADS_MAX && next != from => from = next,
                _ => return Ok(uploads),
            }
        }
    }

    async fn abort(&self, upload: &Upload) -> slatedb::object_store::Result<()> {
        self.objects.abort_multipart(&upload.path, &upload.id).await
    }
}

/// Start of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Mark {
    key: String,
    id: String,
}

/// Page of uploads: `ListMultipartUploadsResult` of S3.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Page {
    #[serde(rename = "Upload")]
    uploads: Vec<Listed>,
    is_truncated: bool,
    next_key_marker: String,
    next_upload_id_marker: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    key: String,
    upload_id: String,
}

impl Page {
    fn parse(body: &[u8]) -> Result<Page, String> {
        quick_xml::de::from_reader(body).map_err(|error| error.to_string())
    }

    /// Returns the start of the next page, if there is one.
    fn next(&self) -> Option<Mark> {
        let (key, id) = (self.next_key_marker.clone(), self.next_upload_id_marker.clone());
        self.is_truncated.then_some(Mark { key, id })
    }

    fn uploads(&self) -> impl Iterator<Item = Upload> {
        // Objects with other names are not ours.
        self.uploads.iter().filter_map(|listed| {
            let path = ObjectPath::parse(&listed.key).ok()?;
            Some(Upload { path, id: listed.upload_id.clone() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Page, String> {
        Page::parse(text.as_bytes())
    }

    #[test]
    fn lists_of_uploads_are_read() {
        let page = parse(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n\
             <Bucket>b</Bucket><KeyMarker/><IsTruncated>true</IsTruncated>\
             <NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>m</NextUploadIdMarker>\
             <Upload><Key>a/b &amp; c&#39;.sst</Key><Initiator><ID>me</ID></Initiator>\
             <UploadId>one</UploadId></Upload><CommonPrefixes/>\
             <Upload><UploadId>two</UploadId><Key>a/d.sst</Key></Upload>\
             <Upload><UploadId>three</UploadId><Key>a//d.sst</Key></Upload>\
             </ListMultipartUploadsResult>",
        )
        .unwrap();
        let of = |path: &str, id: &str| {
            let path = ObjectPath::parse(path).unwrap();
            Upload { path, id: id.to_owned() }
        };
        let uploads: Vec<Upload> = page.uploads().collect();
        assert_eq!(uploads, [of("a/b & c'.sst", "one"), of("a/d.sst", "two")]);
        assert_eq!(page.next(), Some(Mark { key: "k".into(), id: "m".into() }));
        let none = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>\
                    </ListMultipartUploadsResult>";
        let page = parse(none).unwrap();
        assert!(page.uploads().next().is_none() && page.next().is_none());
    }

    #[test]
    fn answers_that_are_no_lists_are_refused() {
        for text in [
            "",
            "it works!",
            "<ListMultipartUploadsResult><Upload>",
            "<ListMultipartUploadsResult><Upload></Key>",
            "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload></ListMultipartUploadsResult>",
            "\u{0}<<<",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
