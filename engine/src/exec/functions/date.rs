//! Functions of date and time, in UTC.

use crate::catalog::DateFunction;
use crate::exec::adapter::elementwise::RowKernel;
use model::calendar::{Date, Moment};

/// Returns the function that extracts the requested part of a time.
pub(super) fn question(function: DateFunction) -> fn(Moment) -> f64 {
    match function {
        DateFunction::Minute => |moment| (moment.second_of_day / 60 % 60) as f64,
        DateFunction::Hour => |moment| (moment.second_of_day / 3600) as f64,
        DateFunction::DayOfWeek => |moment| (moment.day + 4).rem_euclid(7) as f64,
        DateFunction::DayOfMonth => |moment| Date::of(moment).day as f64,
        DateFunction::DayOfYear => |moment| Date::of(moment).day_of_year() as f64,
        DateFunction::DaysInMonth => |moment| Date::of(moment).days_in_month() as f64,
        DateFunction::Month => |moment| Date::of(moment).month as f64,
        DateFunction::Year => |moment| Date::of(moment).year as f64,
    }
}

/// Returns the kernel that applies `question` to every value.
pub(super) fn kernel(question: fn(Moment) -> f64) -> RowKernel {
    Box::new(move |_, values, _| {
        values.iter_mut().for_each(|value| *value = question(Moment::from_float(*value)));
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{FunctionId, lookup};

    fn ask(name: &str, seconds: f64) -> f64 {
        let FunctionId::Date(function) = lookup(name).unwrap().id else {
            panic!("{name} is no function of the calendar");
        };
        question(function)(Moment::from_float(seconds))
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
    }

    proptest! {
        #[test]
        fn any_number_has_a_date(value in any::<f64>()) {
            for name in ["minute", "hour", "day_of_week", "day_of_month", "month", "year"] {
                prop_assert!(ask(name, value).is_finite());
            }
        }
    }
}
