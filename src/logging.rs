//! The log, on standard error: `key=value` pairs or JSON, a line a message.

use std::fmt::Write as _;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::{LogFormat, LogLevel};
use crate::http::time::format_rfc3339;

/// Starts the log of the process. Does nothing where one has been started already.
pub fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    // The libraries below tell of their own affairs; only their warnings matter here.
    let quiet = if level == "error" { "error" } else { "warn" };
    let filter = EnvFilter::new(format!(
        "{quiet},tessella={level},storage={level},engine={level},model={level}"
    ));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let _ = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Logfmt => builder.event_format(Logfmt).try_init(),
    };
}

/// Writes `time=… level=INFO msg="…" key=value`, as Prometheus does.
struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
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
        let mut line = Line::default();
        event.record(&mut line);
        let level = level_name(*event.metadata().level());
        let time = format_rfc3339(SystemTime::now());
        writeln!(writer, "time={time} level={level} msg={}{}", line.message, line.fields)
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

/// The parts of a line, each value in quotes where it needs them.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn add(&mut self, field: &Field, value: &str) {
        let needs_quotes = value.is_empty()
            || value.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"' || c == '=');
        let value = if needs_quotes { crate::units::quoted(value) } else { value.to_owned() };
        if field.name() == "message" {
            self.message = value;
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.fields, " {}={value}", field.name());
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A log in memory. Copies share it.
    #[derive(Clone, Default)]
    pub(crate) struct Lines(pub(crate) Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_is_one_line_of_pairs() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Logfmt)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(address = %"127.0.0.1:1", note = "a\nb", count = 3, "Server is up.");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.starts_with("time=2") && time.ends_with('Z'), "{time}");
        assert_eq!(
            rest,
            "level=INFO msg=\"Server is up.\" address=127.0.0.1:1 note=\"a\\nb\" count=3\n"
        );
    }
}
