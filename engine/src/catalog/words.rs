//! Words of PromQL other than functions, as the page suggests them.

/// A word with its description for the page.
#[derive(Debug, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub name: &'static str,
    /// Parameters between its parentheses; empty for a keyword.
    pub parameters: &'static str,
    /// Meaning in a few words.
    pub summary: &'static str,
}

/// Aggregations, sorted by name.
pub static AGGREGATIONS: &[Word] = &[
    aggregation("avg", "v", "average over series"),
    aggregation("bottomk", "k, v", "the k smallest series"),
    aggregation("count", "v", "number of series"),
    aggregation("count_values", "label, v", "number of series for each value"),
    aggregation("group", "v", "1 for each group that exists"),
    aggregation("limit_ratio", "ratio, v", "a fraction of the series, chosen by their labels"),
    aggregation("limitk", "k, v", "k series, chosen by their labels"),
    aggregation("max", "v", "largest over series"),
    aggregation("min", "v", "smallest over series"),
    aggregation("quantile", "q, v", "quantile over series, 0 to 1"),
    aggregation("stddev", "v", "standard deviation over series"),
    aggregation("stdvar", "v", "variance over series"),
    aggregation("sum", "v", "sum over series"),
    aggregation("topk", "k, v", "the k largest series"),
];

/// Keywords and operators that are words, sorted by name.
pub static KEYWORDS: &[Word] = &[
    keyword("and", "series of the left that match the right"),
    keyword("anchored", "range with the sample before its start"),
    keyword("atan2", "angle of two values"),
    keyword("bool", "comparison gives 0 or 1"),
    keyword("by", "group by these labels"),
    keyword("fill", "value for series without a match"),
    keyword("fill_left", "value for the left where it is missing"),
    keyword("fill_right", "value for the right where it is missing"),
    keyword("group_left", "many on the left match one on the right"),
    keyword("group_right", "one on the left matches many on the right"),
    keyword("ignoring", "match by all labels but these"),
    keyword("offset", "look further back"),
    keyword("on", "match by these labels"),
    keyword("or", "series of both, the left first"),
    keyword("smoothed", "values interpolated between samples"),
    keyword("unless", "series of the left that do not match the right"),
    keyword("without", "group by all labels but these"),
];

const fn aggregation(name: &'static str, parameters: &'static str, summary: &'static str) -> Word {
    Word { name, parameters, summary }
}

const fn keyword(name: &'static str, summary: &'static str) -> Word {
    Word { name, parameters: "", summary }
}
