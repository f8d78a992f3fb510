//! State that handlers and the process share: configuration, store, queries, metrics and the progress
//! of the server from start to stop.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use model::Source;
use storage::Store;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::flags::Args;
use crate::ingest::{IngestMetrics, RemoteWrite};
use crate::metrics::Metrics;
use crate::query::{Evaluate, Queries};
use crate::web_config::ActiveWebConfig;

/// Where the server stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Readiness {
    /// The log is being replayed.
    Starting = 0,
    /// Queries are served from a store that takes no writes yet.
    Reading = 1,
    /// Requests are served.
    Ready = 2,
    /// No new requests are served.
    Stopping = 3,
}

/// What every handler shares.
pub(crate) struct Shared {
    pub(crate) args: Args,
    config: RwLock<Arc<Config>>,
    /// What holds for connections, and who may ask.
    pub(crate) web: Arc<ActiveWebConfig>,
    readiness: AtomicU8,
    source: RwLock<Option<Arc<dyn Source>>>,
    /// Why the store cannot be opened to write to it, while that is so.
    unwritable: Mutex<Option<String>>,
    store: OnceLock<Arc<Store>>,
    pub(crate) remote_write: RemoteWrite,
    pub(crate) ingest_metrics: IngestMetrics,
    pub(crate) queries: Queries,
    pub(crate) metrics: Metrics,
    pub(crate) started: SystemTime,
    pub(crate) stop: Notify,
    stop_requested: AtomicBool,
}

impl Shared {
    /// The state of a server that has not opened its store yet.
    pub(crate) fn new(
        args: Args,
        config: Config,
        web: ActiveWebConfig,
        engine: Box<dyn Evaluate>,
    ) -> Arc<Shared> {
        let queries = Queries::new(&args, engine);
        let metrics = Metrics::new(queries.gate().slots_max());
        if let Some(results) = queries.results() {
            metrics.watch_results(results);
        }
        let ingest_metrics = IngestMetrics::new(metrics.registry());
        Arc::new(Shared {
            config: RwLock::new(Arc::new(config)),
            web: Arc::new(web),
            readiness: AtomicU8::new(Readiness::Starting as u8),
            source: RwLock::default(),
            unwritable: Mutex::default(),
            store: OnceLock::new(),
            remote_write: RemoteWrite::new(args.remote_write.limits(), ingest_metrics.clone()),
            ingest_metrics,
            queries,
            metrics,
            started: SystemTime::now(),
            stop: Notify::new(),
            stop_requested: AtomicBool::new(false),
            args,
        })
    }

    /// Serves from a store, and writes to it, from now on.
    pub(crate) fn set_store(&self, store: &Arc<Store>) {
        let watched = Arc::clone(store);
        self.metrics.watch_store(move || (watched.stats(), watched.refused_series()));
        // A process opens one store.
        let _ = self.store.set(Arc::clone(store));
        // It may have been set anew since the store began to open.
        if let Ok(retention) = self.config().retention(&self.args) {
            store.set_retention(retention);
        }
        self.set_ready(Arc::clone(store) as Arc<dyn Source>);
    }

    /// Serves from a source from now on.
    pub(crate) fn set_ready(&self, source: Arc<dyn Source>) {
        self.replace_source(source, Readiness::Ready);
    }

    /// Answers queries from a source from now on, though no writes are accepted.
    pub(crate) fn set_reading(&self, source: Arc<dyn Source>) {
        self.replace_source(source, Readiness::Reading);
    }

    fn replace_source(&self, source: Arc<dyn Source>, readiness: Readiness) {
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
        if self.readiness() != Readiness::Stopping {
            self.set_readiness(readiness);
        }
    }

    /// Notes why the store cannot be opened to write to it.
    pub(crate) fn note_unwritable(&self, reason: Option<String>) {
        *self.unwritable.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Why the store cannot be opened to write to it, while that is so.
    pub(crate) fn unwritable(&self) -> Option<String> {
        self.unwritable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves nothing new from now on.
    pub(crate) fn begin_stop(&self) {
        self.set_readiness(Readiness::Stopping);
    }

    /// Where the server stands.
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

    /// Where series come from, once the server is ready.
    pub(crate) fn source(&self) -> Option<Arc<dyn Source>> {
        self.source.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where samples are written, once the server is ready.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the configuration file and that of the web again. What is in force of a file stays
    /// where it has a fault.
    pub(crate) fn reload(&self) -> Result<(), ConfigError> {
        let web = self.web.reload();
        let main = self.reload_main();
        self.metrics.config_read(web.is_ok() && main.is_ok());
        main.and(web)
    }

    fn reload_main(&self) -> Result<(), ConfigError> {
        let read = Config::load(self.args.config_file.as_deref())
            .and_then(|config| Ok((config.retention(&self.args)?, config)));
        match read {
            Ok((retention, config)) => {
                if config.storage.has_other_remote(&self.config().storage) {
                    warn!(
                        "Changes of object stores in the configuration count from the next start \
                         on."
                    );
                }
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                if let Some(store) = self.store() {
                    store.set_retention(retention);
                }
                info!("Configuration is reloaded.");
                Ok(())
            }
            Err(error) => {
                error!(%error, "Configuration cannot be reloaded.");
                Err(error)
            }
        }
    }

    /// The metrics as they stand.
    pub(crate) fn gather_metrics(&self) -> Vec<prometheus::proto::MetricFamily> {
        let gate = self.queries.gate();
        self.metrics.set_queries(gate.running(), gate.waiting());
        let memory = self.queries.memory();
        self.metrics.set_query_memory(memory.bytes(), memory.bytes_peak());
        self.metrics.gather()
    }

    /// Asks the server to stop; `false` where that has been asked before.
    pub(crate) fn request_stop(&self) -> bool {
        let is_first = !self.stop_requested.swap(true, Ordering::AcqRel);
        self.stop.notify_one();
        is_first
    }
}
