//! Life of a standby: it follows the store as a reader, and becomes its writer once the present one
//! stops, ends or is to be replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::{Store, StoreClaim, StoreError, StoreOptions, without_credentials};
use tracing::{error, info, warn};

use crate::state::Shared;

/// Interval between attempts after one has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the store as a reader. If there is none, the standby that claims it first creates it.
pub(crate) async fn open(shared: &Shared, options: StoreOptions) -> Result<Store, StoreError> {
    let (url, lag) = (&shared.args.storage_url, shared.args.reader_lag);
    let mut commanded = shared.promotion.commanded();
    let mut claiming = Box::pin(Store::claim(url, &options, &mut commanded));
    let mut has_warned = false;
    loop {
        match Store::open_reader(url, options.clone(), lag).await {
            Err(StoreError::NoStore(detail)) => {
                if !std::mem::replace(&mut has_warned, true) {
                    let url = without_credentials(url);
                    info!(url, detail, "store does not exist yet; the first standby creates it");
                }
            }
            opened => return opened,
        }
        // Another standby may create it meanwhile.
        if let Ok(claim) = tokio::time::timeout(RETRY_INTERVAL, &mut claiming).await {
            return Store::open_claimed(claim?, options.clone()).await;
        }
    }
}

/// Waits until the store has no other writer, or until the command, and promotes this standby.
/// Returns the store that writes.
///
/// Errors: the store was lost again, or failed, before it accepted writes.
pub(crate) async fn promote(
    shared: &Arc<Shared>,
    standby: &Arc<Store>,
    options: &StoreOptions,
) -> Result<Arc<Store>, StoreError> {
    let mut logged = None;
    loop {
        let promoted = match standby.unpromotable() {
            None => claim_and_promote(shared, standby, options).await,
            // It leaves the store to others, and may follow again.
            Some(error) => Err(error),
        };
        let error = match promoted {
            Ok(writer) => return Ok(writer),
            Err(error) => error,
        };
        shared.promotion.end(Err(error.to_string()));
        if standby.is_writer() {
            return Err(error);
        }
        // An outage fails every attempt.
        if logged.as_ref() != Some(&error) {
            warn!(%error, "this standby cannot become the writer; it continues to follow");
            logged = Some(error);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Claims the store and promotes the standby.
async fn claim_and_promote(
    shared: &Arc<Shared>,
    standby: &Arc<Store>,
    options: &StoreOptions,
) -> Result<Arc<Store>, StoreError> {
    let underway = shared.promotion.begin().await;
    let mut commanded = shared.promotion.commanded();
    let claim = Store::claim(&shared.args.storage_url, options, &mut commanded).await?;
    let (shared, standby) = (Arc::clone(shared), Arc::clone(standby));
    // Continues if the server is stopped meanwhile, which waits for it.
    let promoting = tokio::spawn(async move {
        let promoted = promote_with(&shared, &standby, claim).await;
        drop(underway);
        promoted
    });
    promoting.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
}

/// Promotes a standby that has claimed the store, and serves from the store that writes.
async fn promote_with(
    shared: &Shared,
    standby: &Arc<Store>,
    claim: StoreClaim,
) -> Result<Arc<Store>, StoreError> {
    info!("this standby becomes the writer");
    let began = Instant::now();
    let replacement = standby.promote(claim).await?.map(Arc::new);
    let seconds = began.elapsed().as_secs_f64();
    let writer = match &replacement {
        None => {
            info!(seconds, "this standby has become the writer");
            standby
        }
        Some(writer) => {
            info!(seconds, "this process has become the writer, with a head from the log");
            writer
        }
    };
    shared.set_store(writer);
    shared.promotion.end(Ok(()));
    if replacement.is_some() {
        let replaced = Arc::clone(standby);
        tokio::spawn(async move {
            if let Err(error) = replaced.close_after_reads().await {
                error!(%error, "cannot close the store of the standby");
            }
        });
    }
    Ok(Arc::clone(writer))
}
