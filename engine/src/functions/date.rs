//! Functions of calendar and clock, in UTC.

use crate::exec::elementwise::RowKernel;

/// A time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// Days since the epoch, rounded down.
    day: i64,
    second_of_day: i64,
}

/// What is asked of a time, by the function's name.
pub(super) fn question(name: &str) -> Option<fn(Moment) -> f64> {
    Some(match name {
        "minute" => |moment| (moment.second_of_day / 60 % 60) as f64,
        "hour" => |moment| (moment.second_of_day / 3600) as f64,
        "day_of_week" => |moment| (moment.day + 4).rem_euclid(7) as f64,
        "day_of_month" => |moment| Date::of(moment).day as f64,
        "day_of_year" => |moment| Date::of(moment).day_of_year() as f64,
        "days_in_month" => |moment| Date::of(moment).days_in_month() as f64,
        "month" => |moment| Date::of(moment).month as f64,
        "year" => |moment| Date::of(moment).year as f64,
        _ => return None,
    })
}

/// The kernel that asks it of every value.
pub(super) fn kernel(question: fn(Moment) -> f64) -> RowKernel {
    Box::new(move |_, values, _| {
        values.iter_mut().for_each(|value| *value = question(Moment::from_float(*value)));
    })
}

impl Moment {
    /// A time in seconds since the epoch.
    ///
    /// Go counts seconds in 64 unsigned bits from 1 March of the year -292277022400, and
    /// goes around at both ends.
    pub(super) fn from_seconds(seconds: i64) -> Moment {
        const GO_ZERO_DAYS: u64 = 292_277_022_400 / 400 * 146_097 + 719_468;
        let from_go_zero = (seconds as u64).wrapping_add(GO_ZERO_DAYS * 86_400);
        Moment {
            day: (from_go_zero / 86_400) as i64 - GO_ZERO_DAYS as i64,
            second_of_day: (from_go_zero % 86_400) as i64,
        }
    }

    /// A time in seconds since the epoch, cut to whole ones. What does not fit, and NaN,
    /// becomes what the x86 instruction makes of it, as in Prometheus.
    pub(super) fn from_float(seconds: f64) -> Moment {
        let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&seconds);
        Moment::from_seconds(if fits { seconds as i64 } else { i64::MIN })
    }
}

/// `2006-01-02T15:04:05Z` of a time in ms, cut to seconds towards 1970 as Prometheus cuts.
pub(crate) fn rfc3339(time_ms: i64) -> String {
    let moment = Moment::from_seconds(time_ms / 1000);
    let date = Date::of(moment);
    let clock = moment.second_of_day;
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year,
        date.month,
        date.day,
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
}

struct Date {
    year: i64,
    /// From 1.
    month: i64,
    /// From 1.
    day: i64,
}

impl Date {
    /// The date of a time in the Gregorian calendar, carried back to before it began.
    ///
    /// Years are counted from 1 March, so that the leap day is the last of its year.
    fn of(moment: Moment) -> Date {
        let days = moment.day + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Date { year, month, day }
    }

    fn is_leap_year(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    fn days_in_month(&self) -> i64 {
        match self.month {
            2 => 28 + i64::from(self.is_leap_year()),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    fn day_of_year(&self) -> i64 {
        const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap_day = i64::from(self.month > 2 && self.is_leap_year());
        BEFORE[(self.month - 1) as usize] + leap_day + self.day
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(name: &str, seconds: f64) -> f64 {
        question(name).unwrap()(Moment::from_float(seconds))
    }

    fn date_of_day(day: i64) -> Date {
        Date::of(Moment::from_seconds(day * 86_400))
    }

    #[test]
    fn times_beyond_the_calendar_go_around_as_in_go() {
        for (name, expected) in [
            ("year", 292277026596.0),
            ("month", 12.0),
            ("day_of_month", 4.0),
            ("hour", 15.0),
            ("minute", 30.0),
            ("day_of_week", 0.0),
            ("day_of_year", 339.0),
        ] {
            assert_eq!(ask(name, f64::NAN), expected, "{name}");
            assert_eq!(ask(name, 1e30), expected, "{name}");
        }
        assert_eq!(ask("year", -9e18), -285198644592.0);
        assert_eq!(ask("year", -9.2233720368547e18), 292277026596.0);
    }

    #[test]
    fn known_times_have_known_dates() {
        // 2016-02-29T23:59:59Z, 1969-12-31T23:59:59Z, 2000-12-31, 1900-02-28.
        for (seconds, expected) in [
            (1456790399.0, [59.0, 23.0, 1.0, 29.0, 60.0, 29.0, 2.0, 2016.0]),
            (-1.0, [59.0, 23.0, 3.0, 31.0, 365.0, 31.0, 12.0, 1969.0]),
            (978220800.0, [0.0, 0.0, 0.0, 31.0, 366.0, 31.0, 12.0, 2000.0]),
            (-2203977600.0, [0.0, 0.0, 3.0, 28.0, 59.0, 28.0, 2.0, 1900.0]),
        ] {
            let names = [
                "minute",
                "hour",
                "day_of_week",
                "day_of_month",
                "day_of_year",
                "days_in_month",
                "month",
                "year",
            ];
            for (name, expected) in names.iter().zip(expected) {
                assert_eq!(ask(name, seconds), expected, "{name}({seconds})");
            }
        }
    }

    #[test]
    fn fractions_are_cut_towards_the_epoch() {
        assert_eq!(ask("minute", -0.5), 0.0);
        assert_eq!(ask("year", -0.5), 1970.0);
        assert_eq!(rfc3339(-1500), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339(1_700_000_000_999), "2023-11-14T22:13:20Z");
    }

    proptest! {
        #[test]
        fn days_follow_each_other(day in -1_000_000_000i64..1_000_000_000) {
            let (today, tomorrow) = (date_of_day(day), date_of_day(day + 1));
            if today.day < today.days_in_month() {
                prop_assert_eq!(tomorrow.day, today.day + 1);
                prop_assert_eq!(tomorrow.day_of_year(), today.day_of_year() + 1);
            } else {
                prop_assert_eq!(tomorrow.day, 1);
                prop_assert_eq!(tomorrow.month, today.month % 12 + 1);
                prop_assert_eq!(tomorrow.year, today.year + i64::from(today.month == 12));
            }
        }

        #[test]
        fn any_number_has_a_date(value in any::<f64>()) {
            for name in ["minute", "hour", "day_of_week", "day_of_month", "month", "year"] {
                prop_assert!(ask(name, value).is_finite());
            }
        }
    }
}
