//! Layers of object stores, each of which changes some requests.
//!
//! [`Layer`] has the requests that layers change or count; all others go to the innermost store.
//! Reads of several ranges are split into single ones, so that each layer sees them.

use std::fmt;
use std::ops::Deref;

use async_trait::async_trait;
use futures::stream::BoxStream;
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// Layer over an object store.
///
/// Default implementations pass the request on.
#[async_trait]
pub(crate) trait Layer: fmt::Debug + Send + Sync + 'static {
    /// Returns the object store below.
    fn below(&self) -> &dyn ObjectStore;

    /// Writes the name of the object store for messages.
    fn fmt_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.below(), f)
    }

    /// [`ObjectStore::put_opts`].
    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.below().put_opts(to, bytes, how).await
    }

    /// [`ObjectStore::put_multipart_opts`].
    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.below().put_multipart_opts(to, how).await
    }

    /// [`ObjectStore::get_opts`].
    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        self.below().get_opts(from, how).await
    }

    /// [`ObjectStore::delete_stream`].
    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.below().delete_stream(paths)
    }

    /// Called before a request for a list, which goes to the store below.
    fn begin_list(&self) {}
}

/// Layer that implements [`ObjectStore`].
pub(crate) struct Layered<L>(pub(crate) L);

impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}

impl<L: Layer> fmt::Display for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_name(f)
    }
}

impl<L: Layer> fmt::Debug for Layered<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl<L: Layer> ObjectStore for Layered<L> {
    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.0.put_opts(to, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(to, how).await
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        self.0.get_opts(from, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.begin_list();
        self.0.below().list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.begin_list();
        self.0.below().list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.begin_list();
        self.0.below().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.0.below().copy_opts(from, to, how).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, how: RenameOptions) -> Result<()> {
        self.0.below().rename_opts(from, to, how).await
    }
}
