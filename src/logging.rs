//! Log on standard error: `key=value` pairs or JSON, one line per message, with the keys of
//! Prometheus: `time`, `level`, `source`, `msg`, then the fields.
//!
//! Source: `promslog/slog.go` of Prometheus' common library.

use std::fmt::Write as _;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::flags::{LogFormat, LogLevel};
use crate::time::format_rfc3339;

/// Starts the log of the process, unless it is started already.
pub fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    // Of other libraries, only warnings are logged.
    let quiet = if level == "error" { "error" } else { "warn" };
    let filter = EnvFilter::new(format!(
        "{quiet},tessella={level},storage={level},engine={level},model={level}"
    ));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let _ = builder.event_format(LineFormat(format)).try_init();
}

/// Writes `time=… level=INFO source=server.rs:1 msg="…" key=value`, or
/// `{"time":"…","level":"INFO","source":"server.rs:1","msg":"…","key":"value"}`.
struct LineFormat(LogFormat);

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let time = format_rfc3339(SystemTime::now());
        let level = level_name(*event.metadata().level());
        let source = source(event.metadata());
        match self.0 {
            LogFormat::Logfmt => {
                let mut line = LogLine::default();
                event.record(&mut line);
                let LogLine { message, fields } = line;
                writeln!(writer, "time={time} level={level} source={source} msg={message}{fields}")
            }
            LogFormat::Json => {
                let mut object = Object::default();
                event.record(&mut object);
                let (source, message) = (json_text(&source), json_text(&object.message));
                let start = format!("\"time\":\"{time}\",\"level\":\"{level}\"");
                let fields = object.fields;
                writeln!(writer, "{{{start},\"source\":{source},\"msg\":{message}{fields}}}")
            }
        }
    }
}

/// Returns file and line of a message.
fn source(metadata: &Metadata<'_>) -> String {
    let file = metadata.file().unwrap_or_default();
    let file = file.rsplit('/').next().unwrap_or_default();
    format!("{file}:{}", metadata.line().unwrap_or_default())
}

/// Returns the key of a field, with a prefix if the line has it already.
fn key(field: &Field) -> String {
    match field.name() {
        name @ ("time" | "level" | "source" | "msg") => format!("logged_{name}"),
        name => name.to_owned(),
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

/// Parts of a line, with values quoted if necessary.
#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl LogLine {
    fn add(&mut self, field: &Field, value: &str) {
        let needs_quotes = value.is_empty()
            || value.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"' || c == '=');
        let value = if needs_quotes { crate::units::quoted(value) } else { value.to_owned() };
        if field.name() == "message" {
            self.message = value;
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.fields, " {}={value}", key(field));
        }
    }
}

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

/// Parts of a JSON object.
#[derive(Default)]
struct Object {
    message: String,
    fields: String,
}

impl Object {
    /// Adds a field with a value in JSON.
    fn add(&mut self, field: &Field, value: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.fields, ",{}:{value}", json_text(&key(field)));
    }
}

impl Visit for Object {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.add(field, &json_text(value));
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.add(field, &value.to_string());
        } else {
            self.record_str(field, &value.to_string());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, &value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// Log in memory, shared by its clones.
    #[derive(Clone, Default)]
    pub(crate) struct Lines(pub(crate) Arc<Mutex<Vec<u8>>>);

    impl Lines {
        /// Collects the log of this thread until the guard is dropped.
        pub(crate) fn collect(&self) -> tracing::subscriber::DefaultGuard {
            let writer = self.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .without_time()
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::set_default(subscriber)
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat) -> (String, u32) {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(LineFormat(format))
            .with_writer(move || writer.clone())
            .finish();
        let line = line!() + 2;
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(address = %"127.0.0.1:1", note = "a\nb", count = 3, time = 0.5, "up");
        });
        (String::from_utf8(lines.0.lock().unwrap().clone()).unwrap(), line)
    }

    #[test]
    fn a_message_is_one_line_of_pairs() {
        let (text, line) = logged(LogFormat::Logfmt);
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.starts_with("time=2") && time.ends_with('Z'), "{time}");
        assert_eq!(
            rest,
            format!(
                "level=INFO source=logging.rs:{line} msg=up address=127.0.0.1:1 \
                 note=\"a\\nb\" count=3 logged_time=0.5\n"
            )
        );
    }

    #[test]
    fn a_message_in_json_has_the_keys_of_prometheus() {
        let (text, line) = logged(LogFormat::Json);
        assert_eq!(text.lines().count(), 1);
        let (start, rest) = text.split_at(r#"{"time":"2026-01-31T12:00:00.000Z","#.len());
        assert!(start.starts_with(r#"{"time":"2"#) && start.ends_with(r#"Z","#), "{start}");
        assert_eq!(
            rest,
            format!(
                "\"level\":\"INFO\",\"source\":\"logging.rs:{line}\",\"msg\":\"up\",\
                 \"address\":\"127.0.0.1:1\",\"note\":\"a\\nb\",\"count\":3,\
                 \"logged_time\":0.5}}\n"
            )
        );
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}
