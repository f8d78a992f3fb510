//! Dates and times of day in UTC, with the limits of Go's times.

/// Time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Days since the epoch, rounded down.
    pub day: i64,
    /// Second of the day, from 0.
    pub second_of_day: i64,
}

impl Moment {
    /// Converts seconds since the epoch.
    ///
    /// Go counts seconds in 64 unsigned bits from 1 March of the year -292277022400, and wraps at
    /// both ends.
    pub fn from_seconds(seconds: i64) -> Moment {
        const GO_ZERO_DAYS: u64 = 292_277_022_400 / 400 * 146_097 + 719_468;
        let from_go_zero = (seconds as u64).wrapping_add(GO_ZERO_DAYS * 86_400);
        Moment {
            day: (from_go_zero / 86_400) as i64 - GO_ZERO_DAYS as i64,
            second_of_day: (from_go_zero % 86_400) as i64,
        }
    }

    /// Converts seconds since the epoch, truncated. Values out of range and NaN become `i64::MIN`,
    /// as in Prometheus on x86.
    pub fn from_float(seconds: f64) -> Moment {
        let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&seconds);
        Moment::from_seconds(if fits { seconds as i64 } else { i64::MIN })
    }
}

/// Formats a time in ms as `2006-01-02T15:04:05Z`, truncated towards 1970 as in Prometheus.
pub fn rfc3339(time_ms: i64) -> String {
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

/// Date in the Gregorian calendar.
pub struct Date {
    /// Year; 0 is the one before 1.
    pub year: i64,
    /// Month, from 1.
    pub month: i64,
    /// Day of the month, from 1.
    pub day: i64,
}

impl Date {
    /// Returns the date of a time, in the proleptic Gregorian calendar.
    ///
    /// Years are counted from 1 March, so that the leap day is the last of its year.
    pub fn of(moment: Moment) -> Date {
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

    /// Returns the days from the epoch to the date.
    pub fn day_since_epoch(&self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let month_from_march = (self.month + 9) % 12;
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days_before_month = (153 * month_from_march + 2) / 5;
        year * 365 + leap_days + days_before_month + self.day - 1 - 719_468
    }

    fn is_leap_year(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    /// Returns the number of days in its month.
    pub fn days_in_month(&self) -> i64 {
        match self.month {
            2 => 28 + i64::from(self.is_leap_year()),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// Returns the day of the year, from 1.
    pub fn day_of_year(&self) -> i64 {
        const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap_day = i64::from(self.month > 2 && self.is_leap_year());
        BEFORE[(self.month - 1) as usize] + leap_day + self.day
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date_of_day(day: i64) -> Date {
        Date::of(Moment::from_seconds(day * 86_400))
    }

    #[test]
    fn times_are_truncated_towards_the_epoch() {
        assert_eq!(rfc3339(-1500), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339(1_700_000_000_999), "2023-11-14T22:13:20Z");
    }

    proptest! {
        #[test]
        fn days_follow_each_other(day in -1_000_000_000i64..1_000_000_000) {
            let (today, tomorrow) = (date_of_day(day), date_of_day(day + 1));
            prop_assert_eq!(today.day_since_epoch(), day);
            if today.day < today.days_in_month() {
                prop_assert_eq!(tomorrow.day, today.day + 1);
                prop_assert_eq!(tomorrow.day_of_year(), today.day_of_year() + 1);
            } else {
                prop_assert_eq!(tomorrow.day, 1);
                prop_assert_eq!(tomorrow.month, today.month % 12 + 1);
                prop_assert_eq!(tomorrow.year, today.year + i64::from(today.month == 12));
            }
        }
    }
}
