//! Life of the process: start, opening of the store, reload and stop.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use sd_notify::NotifyState;
use storage::{DiskCacheOptions, Retention, Store, StoreError, StoreOptions, without_credentials};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::build_info::{REVISION, VERSION};
use crate::config::Config;
use crate::flags::{Args, ListenAddress, Mode};
use crate::grpc;
use crate::http;
use crate::ingest::self_metrics;
use crate::kernel::allocator;
use crate::listener::{self, ConnectionLimits, Protocol};
use crate::release_trigger::{Activity, ReleaseTrigger};
use crate::retention_status::{self, RetentionStatus};
use crate::standby;
use crate::state::Shared;
use crate::units::millis;
use crate::web_config::ActiveWebConfig;

/// Interval of checks whether unused memory can be released, and of measurements of the disk.
const TEND_INTERVAL: Duration = Duration::from_secs(5);

/// Interval of a reader's checks whether its store exists.
const STORE_INTERVAL: Duration = Duration::from_secs(10);

/// Delay from the first failed write at a start until the store is opened for reading.
const READ_AFTER: Duration = Duration::from_secs(2);

/// Maximum time to close the store.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Exit status of a server that has lost its store: another process owns it, or it is gone.
const LOST_STORE_STATUS: u8 = 3;

/// Runs the server until it is asked to stop.
pub async fn run(args: Args) -> ExitCode {
    let read = Config::load(args.config_file.as_deref());
    let config = match read.and_then(|config| {
        config.retention(&args)?;
        config.tenant_limits(&args)?;
        config.check_external_labels(&args)?;
        Ok(config)
    }) {
        Ok(config) => config,
        Err(error) => {
            error!(%error, "cannot read configuration");
            return ExitCode::from(2);
        }
    };
    let web = match ActiveWebConfig::load(args.web_config_file.as_deref()) {
        Ok(web) => web,
        Err(error) => {
            error!(%error, "cannot read web configuration");
            return ExitCode::from(2);
        }
    };
    let Ok(listeners) = Listeners::bind(&args).await else {
        return ExitCode::FAILURE;
    };
    let address = listeners.web_address;
    let store_url = without_credentials(&args.storage_url);
    let (version, revision, tls) = (VERSION, REVISION, web.has_tls());
    info!(%address, store = store_url, version, revision, tls, "server is starting");
    if let Some((_, address)) = &listeners.grpc {
        info!(%address, "gRPC is enabled");
    }
    warn_of_prometheus_data(&args.storage_url);
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            error!(%error, "cannot listen to signals");
            return ExitCode::FAILURE;
        }
    };
    let shared = Shared::new(args, config, web);
    if listeners.grpc.is_some() && shared.external_labels().is_empty() {
        warn!(
            "this server has no external labels: Thanos takes servers with equal labels for replicas \
             (--external-label)"
        );
    }
    serve_until_stopped(shared, listeners, signals).await
}

/// Warns if the folder of the store has data of Prometheus, whose command line may have been kept.
fn warn_of_prometheus_data(storage_url: &str) {
    let Some(folder) = storage::local_folder(storage_url) else { return };
    if folder.join("chunks_head").is_dir() {
        warn!(
            folder = %folder.display(),
            "data of Prometheus in the folder of the store are not read: import them with tessella import"
        );
    }
}

/// Sockets of the server.
struct Listeners {
    web: TcpListener,
    web_address: SocketAddr,
    /// Socket of gRPC, if it is enabled.
    grpc: Option<(TcpListener, SocketAddr)>,
}

impl Listeners {
    /// Errors: an address cannot be listened on, which is logged.
    async fn bind(args: &Args) -> Result<Listeners, ()> {
        let (web, web_address) = bind(&args.listen_address, "web.listen-address").await?;
        let grpc = match &args.grpc_listen_address {
            Some(address) => Some(bind(address, "grpc.listen-address").await?),
            None => None,
        };
        Ok(Listeners { web, web_address, grpc })
    }
}

async fn bind(address: &ListenAddress, flag: &str) -> Result<(TcpListener, SocketAddr), ()> {
    let bound = TcpListener::bind(&address.0).await;
    bound.and_then(|listener| Ok((listener.local_addr()?, listener))).map_or_else(
        |error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                error!(
                    %address, %error,
                    "address is in use by another process: stop it, or set another address (--{flag})"
                );
            } else {
                error!(%address, %error, "cannot listen on the address (--{flag})");
            }
            Err(())
        },
        |(address, listener)| Ok((listener, address)),
    )
}

async fn serve_until_stopped(
    shared: Arc<Shared>,
    listeners: Listeners,
    mut signals: Signals,
) -> ExitCode {
    let address = listeners.web_address;
    let (stop_serving, serving) = serve(&shared, listeners);
    let opened = tokio::select! {
        opened = open_store(&shared, address) => Some(opened),
        () = signals.stop_asked(&shared) => None,
    };
    let store = match opened {
        Some(Ok(store)) => store,
        Some(Err(error)) => {
            error!(%error, "cannot open store");
            return status_of(&error);
        }
        None => {
            info!("server has stopped before its store was open");
            return ExitCode::SUCCESS;
        }
    };
    measure_disk(&shared).await;
    shared.set_store(&store);
    info!("server is ready");
    notify_service_manager(NotifyState::Ready);
    let (stop_writing, writing) = write_self_metrics(&shared, address);
    let tending = tokio::spawn(tend(Arc::clone(&shared)));
    let lost = tokio::select! {
        () = signals.stop_asked(&shared) => None,
        error = write_until_lost(&shared, store, address) => Some(error),
    };
    tending.abort();
    match &lost {
        None => info!("server is stopping"),
        Some(error) => error!(%error, "this process has lost its store and is stopping"),
    }
    shared.begin_stop();
    notify_service_manager(NotifyState::Stopping);
    tokio::spawn(signals.end_at_next());
    // The receivers may be gone already.
    let _ = (stop_serving.send(()), stop_writing.send(()));
    if !serving.await.unwrap_or(false) {
        warn!("requests were aborted at the end of the shutdown (--web.shutdown-timeout)");
    }
    if let Err(error) = writing.await {
        error!(%error, "task for own metrics failed");
    }
    close_all(&shared, lost).await
}

/// Reports a state to systemd, or another service manager that sets `NOTIFY_SOCKET`.
fn notify_service_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!(%error, "service manager cannot be notified (NOTIFY_SOCKET)");
    }
}

/// Closes the store, and the one by which a promotion replaces it meanwhile.
async fn close_all(shared: &Shared, lost: Option<StoreError>) -> ExitCode {
    let Some(store) = shared.store() else { return ExitCode::SUCCESS };
    let began = Instant::now();
    let status = close(&store, lost.clone()).await;
    // An attempt that has not begun releases its claim.
    shared.promotion.wait_for_end(CLOSE_TIMEOUT.saturating_sub(began.elapsed())).await;
    match shared.store().filter(|writer| !Arc::ptr_eq(writer, &store)) {
        Some(writer) => close(&writer, lost).await,
        None => status,
    }
}

/// Waits until this process has lost the store that it writes to; a standby writes to it later.
async fn write_until_lost(
    shared: &Arc<Shared>,
    store: Arc<Store>,
    address: SocketAddr,
) -> StoreError {
    if shared.args.mode != Mode::Standby || store.is_writer() {
        return store.wait_until_lost().await;
    }
    match standby::promote(shared, &store, &address_options(shared, address)).await {
        Ok(writer) => writer.wait_until_lost().await,
        Err(error) => error,
    }
}

/// Starts to serve requests until the sender is used. The task returns whether all were finished.
fn serve(shared: &Arc<Shared>, listeners: Listeners) -> (oneshot::Sender<()>, JoinHandle<bool>) {
    let limits = ConnectionLimits {
        connections_max: shared.args.connections_max as usize,
        read_timeout: shared.args.read_timeout,
        write_stall_timeout: shared.args.write_stall_timeout,
        shutdown_timeout: shared.args.shutdown_timeout,
    };
    let (stop_serving, serving_stops) = oneshot::channel::<()>();
    // A dropped sender stops, too.
    let stopped = async { drop(serving_stops.await) }.shared();
    let start = |listener, protocol, router| {
        let web = Arc::clone(&shared.web);
        tokio::spawn(listener::serve(listener, protocol, router, web, limits, stopped.clone()))
    };
    let router = http::router::router(Arc::clone(shared));
    let web = start(listeners.web, Protocol::Web, router);
    let grpc = listeners
        .grpc
        .map(|(listener, _)| start(listener, Protocol::Grpc, grpc::router(Arc::clone(shared))));
    let serving = tokio::spawn(async move {
        let web_is_done = web.await.unwrap_or(false);
        let grpc_is_done = match grpc {
            Some(grpc) => grpc.await.unwrap_or(false),
            None => true,
        };
        web_is_done && grpc_is_done
    });
    (stop_serving, serving)
}

/// Closes the store, which may be lost, and returns the exit status of the server.
async fn close(store: &Store, lost: Option<StoreError>) -> ExitCode {
    let closed = tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await;
    if let Some(error) = lost.or_else(|| store.lost()) {
        error!(
            %error,
            status = LOST_STORE_STATUS,
            "this process has lost its store and has stopped"
        );
        return ExitCode::from(LOST_STORE_STATUS);
    }
    match closed {
        Ok(Ok(())) => {
            info!("server has stopped");
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            error!(%error, "cannot close store");
            ExitCode::FAILURE
        }
        Err(_) => {
            error!(
                seconds = CLOSE_TIMEOUT.as_secs(),
                "store was not closed in time, because its object store does not answer; the next \
                 start replays acknowledged samples from the log"
            );
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit status for a store that cannot be opened.
fn status_of(error: &StoreError) -> ExitCode {
    match error {
        StoreError::InvalidUrl { .. } | StoreError::InvalidSetting { .. } => ExitCode::from(2),
        error if error.is_loss() => ExitCode::from(LOST_STORE_STATUS),
        _ => ExitCode::FAILURE,
    }
}

/// Releases free memory to the system after queries, seals and compactions, when no query runs, and
/// measures the disk.
async fn tend(shared: Arc<Shared>) {
    let mut trigger = ReleaseTrigger::default();
    loop {
        tokio::time::sleep(TEND_INTERVAL).await;
        measure_disk(&shared).await;
        let (gate, store) = (shared.queries.gate(), shared.store());
        let activity = Activity {
            queries_entered: gate.entered(),
            queries_running: gate.running(),
            head_bytes: store.as_ref().map_or(0, |store| store.head_bytes()),
            compacted_bytes: store.as_ref().map_or(0, |store| store.compacted_bytes()),
        };
        drop(store);
        if trigger.is_due(activity) {
            // A failed release is repeated after the next activity.
            let _ = tokio::task::spawn_blocking(allocator::release).await;
        }
    }
}

/// Sets the metric of the disk's free bytes, if the store is on a local disk.
async fn measure_disk(shared: &Shared) {
    if let Some(bytes) = retention_status::free_bytes(shared).await {
        shared.metrics.set_disk_free(bytes);
    }
}

/// Starts the task that writes the server's own metrics, if enabled, until the sender is used.
fn write_self_metrics(
    shared: &Arc<Shared>,
    address: SocketAddr,
) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let shared = Arc::clone(shared);
    let writing = tokio::spawn(async move {
        if !shared.args.self_metrics {
            return;
        }
        let gather = || shared.gather_metrics();
        let mut stopped = stopped;
        // A dropped sender stops, too.
        let store = tokio::select! {
            _ = &mut stopped => return,
            store = shared.writer() => store,
        };
        let stopped = async {
            let _ = stopped.await;
        };
        let instance = address.to_string();
        self_metrics::run(&store, gather, &instance, &shared.ingest_metrics, stopped).await;
    });
    (stop, writing)
}

async fn open_store(shared: &Shared, address: SocketAddr) -> Result<Arc<Store>, StoreError> {
    let started = Instant::now();
    let options = address_options(shared, address);
    let store = match shared.args.mode {
        Mode::Writer => open_to_write(shared, options).await?,
        Mode::Standby => standby::open(shared, options).await?,
        Mode::Reader => open_to_read(shared, options).await?,
    };
    let seconds = started.elapsed().as_secs_f64();
    info!(seconds, "store is open");
    let store = Arc::new(store);
    RetentionStatus::of(shared, &store, store.now_ms()).await.log();
    Ok(store)
}

/// Returns the options of the store with the address of this server.
fn address_options(shared: &Shared, address: SocketAddr) -> StoreOptions {
    let config = shared.config();
    // The start has checked the retention.
    let retention = config.retention(&shared.args).unwrap_or_default();
    StoreOptions {
        address: Some(address.to_string()),
        ..store_options(&shared.args, &config, retention)
    }
}

/// Opens the store as its writer. While it accepts no writes, as on a full disk, queries are answered
/// from stored samples.
async fn open_to_write(shared: &Shared, options: StoreOptions) -> Result<Store, StoreError> {
    let (failed, mut failures) = watch::channel(None);
    let url = &shared.args.storage_url;
    let to_read = options.clone();
    let options = StoreOptions { write_failures: Some(failed), ..options };
    let opening = Store::open(url, options);
    let reading = async {
        // A failed opening drops the sender.
        let Ok(reason) = failures.wait_for(Option::is_some).await.map(|reason| reason.clone())
        else {
            return std::future::pending().await;
        };
        tokio::time::sleep(READ_AFTER).await;
        shared.note_unwritable(reason);
        open_meanwhile(shared, to_read).await;
    };
    tokio::pin!(opening, reading);
    let opened = tokio::select! {
        opened = &mut opening => opened,
        () = &mut reading => (&mut opening).await,
    };
    shared.note_unwritable(None);
    opened
}

/// Opens the store for reading, and retries until that succeeds.
async fn open_meanwhile(shared: &Shared, options: StoreOptions) {
    let url = &shared.args.storage_url;
    loop {
        match Store::open_once(url, options.clone()).await {
            Ok(store) => {
                warn!("store accepts no writes; queries are answered from stored samples");
                return shared.set_reading(Arc::new(store));
            }
            Err(StoreError::NoStore(_)) => {
                let error = shared.unwritable().unwrap_or_default();
                warn!(error, "store cannot be created");
            }
            Err(error) => warn!(%error, "store accepts no writes and cannot be read"),
        }
        tokio::time::sleep(STORE_INTERVAL).await;
    }
}

/// Opens the store as a reader, once it exists.
async fn open_to_read(shared: &Shared, options: StoreOptions) -> Result<Store, StoreError> {
    let (url, lag) = (&shared.args.storage_url, shared.args.reader_lag);
    let mut has_warned = false;
    loop {
        match Store::open_reader(url, options.clone(), lag).await {
            Err(StoreError::NoStore(detail)) => {
                if !std::mem::replace(&mut has_warned, true) {
                    let url = without_credentials(url);
                    warn!(url, detail, "store does not exist yet; waiting for its writer");
                }
                tokio::time::sleep(STORE_INTERVAL.min(lag)).await;
            }
            opened => return opened,
        }
    }
}

fn store_options(args: &Args, config: &Config, retention: Retention) -> StoreOptions {
    StoreOptions {
        remote: args.object_store.over(config.storage.remote()),
        take_over: args.take_over,
        lease_duration: args.lease_duration,
        discard_leftovers: args.discard_leftovers,
        retention_ms: retention.time_ms,
        retention_samples_ms: retention.samples_ms,
        retention_bytes: retention.bytes,
        retention_rules: retention.rules,
        retention_confirmation: args.retention_confirmation,
        out_of_order_window_ms: args.out_of_order_window.map(millis),
        commit_interval_min: args.commit_interval,
        write_timeout: args.storage_write_timeout,
        read_timeout: args.storage_read_timeout,
        cache_bytes_max: usize::try_from(args.cache_bytes_max).unwrap_or(usize::MAX),
        disk_cache: args
            .disk_cache_folder
            .clone()
            .map(|folder| DiskCacheOptions { folder, bytes_max: args.disk_cache_bytes_max }),
        warm_up_span_ms: (!args.warm_up_span.is_zero()).then(|| millis(args.warm_up_span)),
        index_cache_bytes_max: usize::try_from(args.index_cache_bytes_max).unwrap_or(usize::MAX),
        columns_bytes_max: usize::try_from(args.columns_bytes_max).unwrap_or(usize::MAX),
        log_bytes_max: args.log_bytes_max,
        head_bytes_max: usize::try_from(args.head_bytes_max).unwrap_or(usize::MAX),
        active_series_max: args.remote_write.active_series_max as usize,
        active_series_per_metric_max: args.remote_write.active_series_per_metric_max as usize,
        tenant_label: args.tenancy.is_on().then(|| args.tenancy.label.clone()),
        exemplars_max: args.exemplars_max as usize,
        ..StoreOptions::default()
    }
}

/// Signals that the process handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM, SIGINT or a request to `/-/quit`; reloads on SIGHUP meanwhile.
    async fn stop_asked(&mut self, shared: &Shared) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                () = shared.stop.notified() => return,
                _ = self.hangup.recv() => {
                    // `reload` logs its error.
                    let _ = shared.reload();
                }
            }
        }
    }
}

impl Signals {
    /// Exits at the next signal to stop. The log holds all acknowledged samples.
    async fn end_at_next(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        warn!("server exits at once after a second signal");
        std::process::exit(1);
    }
}
