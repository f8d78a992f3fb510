//! Times and durations in parameters of the API.

use std::cmp::Ordering;
use std::time::Duration;

use model::calendar::{Date, Moment};
use model::number_text::parse_float;

use crate::units::{parse_duration, quoted};

/// Default start of a metadata query; `math.MinInt64/1000 + 62135596801` seconds.
pub(crate) const MIN: Time = Time { seconds: i64::MIN / 1000 + 62_135_596_801, nanos: 0 };
/// Default end of a metadata query.
pub(crate) const MAX: Time = Time { seconds: i64::MAX / 1000 - 62_135_596_801, nanos: 999_999_999 };

/// [`MIN`] and [`MAX`] as Go prints them: their years have more than four digits.
const MIN_TEXT: &str = "-292273086-05-16T16:47:06Z";
const MAX_TEXT: &str = "292277025-08-18T07:12:54.999999999Z";

/// Seconds from year 1, the start of Go's times, to the epoch.
const GO_EPOCH_SECONDS: i64 = 62_135_596_800;

/// Time in UTC. Beyond the years that Go supports, comparisons and conversions to ms wrap as they do
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    seconds: i64,
    nanos: u32,
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> Ordering {
        (self.go_seconds(), self.nanos).cmp(&(other.go_seconds(), other.nanos))
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Time {
    /// Parses decimal seconds since the epoch, or RFC 3339.
    ///
    /// Errors: the text of Prometheus.
    pub(crate) fn parse(text: &str) -> Result<Time, String> {
        if let Some(number) = parse_float(text) {
            return Ok(Time::from_seconds(number));
        }
        match text {
            MIN_TEXT => Ok(MIN),
            MAX_TEXT => Ok(MAX),
            _ => parse_rfc3339(text)
                .ok_or_else(|| format!("cannot parse {} to a valid timestamp", quoted(text))),
        }
    }

    /// Returns the current time.
    pub(crate) fn now() -> Time {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }

    /// Returns an earlier time.
    pub(crate) fn seconds_before(self, seconds: i64) -> Time {
        Time { seconds: self.seconds.saturating_sub(seconds), ..self }
    }

    /// Converts decimal seconds, with the fraction rounded to ms.
    ///
    /// Source: `parseTime` of Prometheus' API.
    fn from_seconds(number: f64) -> Time {
        let fraction = (number.fract() * 1000.0).round() / 1000.0;
        let nanos = go_integer(fraction * 1e9);
        let seconds = go_integer(number.trunc()).wrapping_add(nanos.div_euclid(1_000_000_000));
        Time { seconds, nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    /// Returns ms since the epoch, as in the evaluation of queries: through nanoseconds in a signed
    /// word, which wrap beyond the years 1677 and 2262, so that arithmetic cannot overflow.
    ///
    /// Source: `timeMilliseconds` of Prometheus' engine.
    pub(crate) fn query_ms(self) -> i64 {
        self.seconds.wrapping_mul(1_000_000_000).wrapping_add(i64::from(self.nanos)) / 1_000_000
    }

    /// Returns seconds since year 1, which wrap.
    fn go_seconds(self) -> i64 {
        self.seconds.wrapping_add(GO_EPOCH_SECONDS)
    }

    /// Returns ms since the epoch, as in lookups of series and labels, which wrap beyond a signed word.
    ///
    /// Source: `FromTime` in `model/timestamp` of Prometheus.
    pub(crate) fn lookup_ms(self) -> i64 {
        self.seconds.wrapping_mul(1000).wrapping_add(i64::from(self.nanos / 1_000_000))
    }

    /// Returns ms since the epoch; `None` where [`Time::lookup_ms`] wraps.
    pub(crate) fn exact_ms(self) -> Option<i64> {
        self.seconds.checked_mul(1000)?.checked_add(i64::from(self.nanos / 1_000_000))
    }

    /// Returns nanoseconds since an earlier time, saturating.
    pub(crate) fn nanos_since(self, earlier: Time) -> i64 {
        let seconds = i128::from(self.go_seconds()) - i128::from(earlier.go_seconds());
        let nanos = seconds * 1_000_000_000 + i128::from(self.nanos) - i128::from(earlier.nanos);
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Parses seconds, or a duration with units, in nanoseconds.
///
/// Errors: the text of Prometheus.
/// Source: `parseDuration` of Prometheus' API.
pub(crate) fn parse_nanos(text: &str) -> Result<i64, String> {
    if let Some(seconds) = parse_float(text) {
        let nanos = seconds * 1e9;
        if nanos > i64::MAX as f64 || nanos < i64::MIN as f64 {
            return Err(format!(
                "cannot parse {} to a valid duration. It overflows int64",
                quoted(text)
            ));
        }
        return Ok(go_integer(nanos));
    }
    let duration = parse_duration(text)
        .map_err(|_| format!("cannot parse {} to a valid duration", quoted(text)))?;
    Ok(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// Converts nanoseconds to a duration; negative values become zero.
pub(crate) fn duration_from_nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// Converts to an integer like Go on 64-bit x86: values out of range become the minimum.
fn go_integer(number: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// Parses `2006-01-02T15:04:05.999999999+07:00`, or with a `Z`.
fn parse_rfc3339(text: &str) -> Option<Time> {
    let bytes = text.as_bytes();
    let literals = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if literals.iter().any(|(at, byte)| bytes.get(*at) != Some(byte)) {
        return None;
    }
    let field = |from: usize, to: usize, max: u32| number(bytes.get(from..to)?, max);
    let (year, month, day) = (field(0, 4, 9999)?, field(5, 7, 12)?, field(8, 10, 31)?);
    let date = Date { year: year.into(), month: month.into(), day: day.into() };
    let (hour, minute, second) = (field(11, 13, 23)?, field(14, 16, 59)?, field(17, 19, 59)?);
    if month == 0 || day == 0 || date.day > date.days_in_month() {
        return None;
    }
    let (nanos, zone) = split_fraction(&bytes[19..])?;
    let offset_seconds = match zone {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let seconds = number(&[*h1, *h2], 24)? * 3600 + number(&[*m1, *m2], 60)? * 60;
            if *sign == b'-' { -i64::from(seconds) } else { i64::from(seconds) }
        }
        _ => return None,
    };
    let seconds_of_day = i64::from(hour * 3600 + minute * 60 + second);
    let seconds = date.day_since_epoch() * 86_400 + seconds_of_day - offset_seconds;
    Some(Time { seconds, nanos })
}

/// Splits nanoseconds such as `.123…` from the rest, if present.
fn split_fraction(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let Some((b'.' | b',', after)) = bytes.split_first() else {
        return Some((0, bytes));
    };
    let len = after.iter().take_while(|b| b.is_ascii_digit()).count();
    if len == 0 {
        return None;
    }
    let mut nanos = 0;
    for at in 0..9 {
        let digit = after[..len].get(at).map_or(0, |b| b - b'0');
        nanos = nanos * 10 + u32::from(digit);
    }
    Some((nanos, &after[len..]))
}

fn number(digits: &[u8], max: u32) -> Option<u32> {
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u32::from(digit - b'0');
    }
    (number <= max).then_some(number)
}

/// Formats a system time as `2006-01-02T15:04:05.678Z`.
pub(crate) fn format_rfc3339(time: std::time::SystemTime) -> String {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let moment = Moment::from_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let (Date { year, month, day }, seconds) = (Date::of(moment), moment.second_of_day);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_read_as_in_prometheus() {
        let cases = [
            ("0", 0),
            ("1435781451.781", 1_435_781_451_781),
            // The fraction is rounded to ms, not the whole.
            ("1.0005", 1000),
            ("1.9996", 2000),
            ("-1.5", -1500),
            ("1e3", 1_000_000),
            ("2015-07-01T20:10:51.781Z", 1_435_781_451_781),
            ("2015-07-01T20:10:51+02:00", 1_435_774_251_000),
            ("1969-12-31T23:59:59.5Z", -500),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000),
            ("0001-01-01T00:00:00Z", -6_795_364_578_871),
            // These overflow as in Prometheus.
            ("NaN", -9_223_372_036_854),
            ("1e300", 0),
            ("10000000000", -8_446_744_073_709),
            (MIN_TEXT, 6_795_364_580_679),
            (MAX_TEXT, -6_795_364_579_679),
        ];
        for (text, ms) in cases {
            assert_eq!(Time::parse(text).unwrap().query_ms(), ms, "{text}");
        }
    }

    #[test]
    fn times_that_are_none_are_named() {
        let cases = [
            "",
            "x",
            "1e400",
            "0x10",
            "2015-07-01",
            "2015-07-01T20:10:51",
            "2015-07-01t20:10:51Z",
            "2015-02-29T20:10:51Z",
            "2015-13-01T20:10:51Z",
            "2015-07-01T20:10:60Z",
            "2015-07-01T20:10:51.Z",
            "2015-07-01T20:10:51+0200",
            "2015-07-01T20:10:51é",
        ];
        for text in cases {
            let error = Time::parse(text).unwrap_err();
            assert_eq!(error, format!("cannot parse {text:?} to a valid timestamp"));
        }
    }

    #[test]
    fn lookups_cover_all_times() {
        assert_eq!(MIN.lookup_ms(), -9_223_309_901_257_974_000 - 199_000 + 199_000);
        assert!(MAX.lookup_ms() > 9_223_000_000_000_000_000);
        assert!(MIN < Time::from_seconds(0.0) && Time::from_seconds(0.0) < MAX);
        assert_eq!(Time::parse("1700000000000").unwrap().lookup_ms(), 1_700_000_000_000_000);
        assert_eq!(MAX.nanos_since(MIN), i64::MAX);
        // As in Go: not a number is far in the past when compared, and 1677 in ms.
        let nan = Time::parse("NaN").unwrap();
        assert!(nan < MIN && nan < Time::from_seconds(0.0));
        assert_eq!(nan.lookup_ms(), -9_223_372_036_855);
        assert_eq!(Time::parse("1e300").unwrap().lookup_ms(), 0);
    }

    #[test]
    fn durations_read_as_in_prometheus() {
        let cases = [("15", 15_000_000_000), ("0.5", 500_000_000), ("1m30s", 90_000_000_000)];
        for (text, nanos) in cases {
            assert_eq!(parse_nanos(text), Ok(nanos));
        }
        assert_eq!(parse_nanos("-5"), Ok(-5_000_000_000));
        assert_eq!(
            parse_nanos("1e300").unwrap_err(),
            "cannot parse \"1e300\" to a valid duration. It overflows int64"
        );
        assert_eq!(parse_nanos("5mm").unwrap_err(), "cannot parse \"5mm\" to a valid duration");
        assert_eq!(parse_nanos("-5m").unwrap_err(), "cannot parse \"-5m\" to a valid duration");
    }

    proptest! {
        #[test]
        fn dates_go_there_and_back(seconds in 0..200_000_000_000_u64, ms in 0..1000_u64) {
            let time = std::time::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + ms);
            let read = Time::parse(&format_rfc3339(time)).unwrap();
            prop_assert_eq!(read.lookup_ms(), (seconds * 1000 + ms) as i64);
        }

        #[test]
        fn any_text_is_a_time_or_an_error(text in "\\PC{0,40}|[0-9TZ:.+-]{0,40}") {
            if let Ok(time) = Time::parse(&text) {
                let _ = (time.query_ms(), time.lookup_ms(), time.nanos_since(MIN));
            }
        }
    }
}
