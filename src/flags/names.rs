//! Names of the flags of limits, which error texts name.

use wire::limits::LimitNames;

/// Declares the names of flags, without and with dashes.
macro_rules! flags {
    ($($flag:ident, $option:ident = $name:literal;)*) => {
        $(
            pub(crate) const $flag: &str = $name;
            pub(crate) const $option: &str = concat!("--", $name);
        )*
    };
}

flags! {
    DECOMPRESSED_FLAG, DECOMPRESSED = "remote-write.max-decompressed-size";
    SERIES_FLAG, SERIES = "remote-write.max-series-per-request";
    SAMPLES_FLAG, SAMPLES = "remote-write.max-samples-per-request";
    LABELS_FLAG, LABELS = "remote-write.max-labels-per-series";
    LABEL_NAME_FLAG, LABEL_NAME = "remote-write.max-label-name-length";
    LABEL_VALUE_FLAG, LABEL_VALUE = "remote-write.max-label-value-length";
    INFLIGHT_FLAG, INFLIGHT = "remote-write.max-inflight-size";
}

pub(crate) const BODY_FLAG: &str = "remote-write.max-body-size";
pub(crate) const BODY_TIMEOUT_FLAG: &str = "remote-write.body-timeout";
pub(crate) const ACTIVE_FLAG: &str = "remote-write.max-active-series";
pub(crate) const ACTIVE_PER_METRIC_FLAG: &str = "remote-write.max-active-series-per-metric";
pub(crate) const HEAD_FLAG: &str = "storage.head-size";

/// Flags of the limits of a write request.
pub(crate) const LIMIT_NAMES: LimitNames = LimitNames {
    decompressed_bytes_max: DECOMPRESSED,
    series_max: SERIES,
    samples_max: SAMPLES,
    labels_per_series_max: LABELS,
    label_name_bytes_max: LABEL_NAME,
    label_value_bytes_max: LABEL_VALUE,
};
