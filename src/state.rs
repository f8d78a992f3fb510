//! State shared by handlers and the process: configuration, store, queries, metrics and readiness.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use engine::QueryOptions;
use model::{Labels, Source};
use storage::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::flags::Args;
use crate::ingest::{IngestMetrics, RemoteWrite};
use crate::metrics::Metrics;
use crate::promotion::Promotion;
use crate::query::Queries;
use crate::query::metric_use::MetricUses;
use crate::tenancy::{Tenancy, TenantTable};
use crate::units::millis;
use crate::web_config::ActiveWebConfig;

/// Stage of the server from start to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Readiness {
    /// The log is being replayed.
    Starting = 0,
    /// Queries are served from a store that accepts no writes yet.
    Reading = 1,
    /// Requests are served.
    Ready = 2,
    /// No new requests are served.
    Stopping = 3,
}

/// State shared by all handlers.
pub(crate) struct Shared {
    pub(crate) args: Args,
    config: RwLock<Arc<Config>>,
    /// TLS, headers and access.
    pub(crate) web: Arc<ActiveWebConfig>,
    readiness: AtomicU8,
    source: RwLock<Option<Arc<dyn Source>>>,
    /// Reason for which the store cannot be opened for writes, while it cannot.
    unwritable: Mutex<Option<String>>,
    /// Set once the store is open, and again when this process becomes its writer.
    store: watch::Sender<Option<Arc<Store>>>,
    pub(crate) promotion: Promotion,
    pub(crate) remote_write: RemoteWrite,
    pub(crate) ingest_metrics: IngestMetrics,
    pub(crate) queries: Queries,
    pub(crate) metrics: Metrics,
    /// Last queries of metrics.
    pub(crate) metric_uses: Arc<MetricUses>,
    /// Settings of tenants, if they are on.
    pub(crate) tenancy: Option<Tenancy>,
    tenants: Arc<TenantTable>,
    pub(crate) started: SystemTime,
    pub(crate) stop: Notify,
    stop_requested: AtomicBool,
}

impl Shared {
    /// Returns the state of a server whose store is not open.
    pub(crate) fn new(args: Args, config: Config, web: ActiveWebConfig) -> Arc<Shared> {
        let tenants = Arc::new(TenantTable::new());
        let queries = Queries::new(&args, Arc::clone(&tenants));
        let metrics = Metrics::new(queries.gate().slots_max());
        metrics.set_head_limits(args.head_bytes_max, args.remote_write.active_series_max);
        tenants.register(metrics.registry());
        tenants.set_limits(config.tenants.limits());
        if let Some(results) = queries.result_cache() {
            metrics.watch_results(Arc::clone(results));
        }
        let ingest_metrics = IngestMetrics::new(metrics.registry());
        Arc::new(Shared {
            config: RwLock::new(Arc::new(config)),
            web: Arc::new(web),
            readiness: AtomicU8::new(Readiness::Starting as u8),
            source: RwLock::default(),
            unwritable: Mutex::default(),
            store: watch::Sender::new(None),
            promotion: Promotion::new(args.take_over),
            remote_write: RemoteWrite::new(args.remote_write.limits(), ingest_metrics.clone()),
            ingest_metrics,
            queries,
            metrics,
            metric_uses: Arc::default(),
            tenancy: args.tenancy.settings(Arc::clone(&tenants)),
            tenants,
            started: SystemTime::now(),
            stop: Notify::new(),
            stop_requested: AtomicBool::new(false),
            args,
        })
    }

    /// Starts to serve queries and writes from a store, or continues with another one.
    pub(crate) fn set_store(&self, store: &Arc<Store>) {
        let watched = Arc::clone(store);
        self.metrics.watch_store(move || (watched.stats(), watched.refused_series()));
        self.store.send_replace(Some(Arc::clone(store)));
        // A reload may have changed it while the store was opened.
        if let Ok(retention) = self.config().retention(&self.args) {
            store.set_retention(retention);
        }
        store.set_tenant_limits(self.config().tenants.limits().active_series());
        self.set_ready(Arc::clone(store) as Arc<dyn Source>);
    }

    /// Starts to serve queries and writes from a source.
    pub(crate) fn set_ready(&self, source: Arc<dyn Source>) {
        self.replace_source(source, Readiness::Ready);
    }

    /// Starts to serve queries alone from a source.
    pub(crate) fn set_reading(&self, source: Arc<dyn Source>) {
        self.replace_source(source, Readiness::Reading);
    }

    fn replace_source(&self, source: Arc<dyn Source>, readiness: Readiness) {
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
        if self.readiness() != Readiness::Stopping {
            self.set_readiness(readiness);
        }
    }

    /// Sets the reason for which the store cannot be opened for writes.
    pub(crate) fn note_unwritable(&self, reason: Option<String>) {
        *self.unwritable.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns the reason for which the store cannot be opened for writes.
    pub(crate) fn unwritable(&self) -> Option<String> {
        self.unwritable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops serving new requests.
    pub(crate) fn begin_stop(&self) {
        self.set_readiness(Readiness::Stopping);
    }

    /// Stage of the server.
    pub(crate) fn readiness(&self) -> Readiness {
        match self.readiness.load(Ordering::Acquire) {
            0 => Readiness::Starting,
            1 => Readiness::Reading,
            2 => Readiness::Ready,
            _ => Readiness::Stopping,
        }
    }

    fn set_readiness(&self, readiness: Readiness) {
        self.readiness.store(readiness as u8, Ordering::Release);
        self.metrics.set_ready(readiness == Readiness::Ready);
    }

    /// Source of queries, once the server is ready.
    pub(crate) fn source(&self) -> Option<Arc<dyn Source>> {
        self.source.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Store for writes, once the server is ready.
    pub(crate) fn store(&self) -> Option<Arc<Store>> {
        self.store.borrow().clone()
    }

    /// Returns whether this server is the writer, after the end of a promotion.
    pub(crate) fn is_writer(&self) -> bool {
        let is_writer = |store: &Store| {
            store.is_writer() && store.write_refusal() != Some(StoreError::ReadOnly)
        };
        self.store().is_some_and(|store| is_writer(&store))
    }

    /// Waits until the server has a store that it writes to.
    pub(crate) async fn writer(&self) -> Arc<Store> {
        let is_writer =
            |store: &Option<Arc<Store>>| store.as_ref().is_some_and(|store| store.is_writer());
        let mut stores = self.store.subscribe();
        match stores.wait_for(is_writer).await.ok().and_then(|store| store.clone()) {
            Some(store) => store,
            // The sender is `self`.
            None => std::future::pending().await,
        }
    }

    /// Active configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Labels of this server in gRPC, remote read and federation. Flags override the configuration.
    pub(crate) fn external_labels(&self) -> Labels {
        self.config().external_labels(&self.args)
    }

    /// Options of queries without settings of their own.
    pub(crate) fn query_options(&self) -> QueryOptions {
        QueryOptions {
            lookback_ms: millis(self.args.lookback_delta),
            subquery_step_ms: millis(self.config().global.evaluation_interval),
            ..QueryOptions::default()
        }
    }

    /// Reloads the configuration and the web configuration. A file with an error changes nothing.
    pub(crate) fn reload(&self) -> Result<(), ConfigError> {
        let web = self.web.reload();
        let main = self.reload_main();
        self.metrics.config_read(web.is_ok() && main.is_ok());
        main.and(web)
    }

    fn reload_main(&self) -> Result<(), ConfigError> {
        let read = Config::load(self.args.config_file.as_deref()).and_then(|config| {
            let limits = config.tenant_limits(&self.args)?;
            config.check_external_labels(&self.args)?;
            Ok((config.retention(&self.args)?, limits, config))
        });
        match read {
            Ok((retention, limits, config)) => {
                if config.storage.has_other_remote(&self.config().storage) {
                    warn!("changed object stores in the configuration apply after a restart");
                }
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                if let Some(store) = self.store() {
                    store.set_retention(retention);
                    store.set_tenant_limits(limits.active_series());
                }
                self.tenants.set_limits(limits);
                info!("configuration reloaded");
                Ok(())
            }
            Err(error) => {
                error!(%error, "cannot reload configuration");
                Err(error)
            }
        }
    }

    /// Gathers the metrics.
    pub(crate) fn gather_metrics(&self) -> Vec<prometheus::proto::MetricFamily> {
        let gate = self.queries.gate();
        self.metrics.set_queries(gate.running(), gate.waiting());
        let memory = self.queries.memory();
        self.metrics.set_writer(self.store().is_some_and(|store| store.is_writer()));
        self.metrics.set_query_memory(memory.bytes(), memory.bytes_peak());
        if let Some(store) = self.store().filter(|_| self.tenancy.is_some()) {
            self.tenants.set_active_series(store.tenant_series());
        }
        self.metrics.gather()
    }

    /// Requests a stop. Returns `false` after the first request.
    pub(crate) fn request_stop(&self) -> bool {
        let is_first = !self.stop_requested.swap(true, Ordering::AcqRel);
        self.stop.notify_one();
        is_first
    }
}
