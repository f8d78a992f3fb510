//! The table of stages in `benches/README.md`: what is read from it, held against it, and
//! written into it.

use std::fmt::Write;

/// How the head of the table begins.
const HEAD: &str = "| stage | of a |";
/// A stage may grow by so much over its figure, and no more.
const GROWTH_MAX: f64 = 1.05;
/// A stage that falls below so much of its figure should have a new one.
const FALL_MIN: f64 = 0.95;

/// What a stage costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its name.
    pub stage: String,
    /// What it is counted by.
    pub unit: String,
    /// Instructions of one unit.
    pub instructions: f64,
    /// CPU time of one unit, where that was measured.
    pub cpu_ns: f64,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
struct Budget {
    stage: String,
    instructions: f64,
    most: f64,
}

/// What came of a comparison.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// What makes it fail.
    pub faults: Vec<String>,
    /// What should be done some time.
    pub hints: Vec<String>,
}

/// Holds figures against the table of a document.
///
/// Errors: there is no such table, or a row of it cannot be read.
pub fn compare(document: &str, figures: &[Figure]) -> Result<Verdict, String> {
    let (_, rows, _) = split(document)?;
    let budgets = rows.iter().map(|row| budget(row)).collect::<Result<Vec<_>, _>>()?;
    let mut verdict = Verdict::default();
    for Figure { stage, instructions, .. } in figures {
        let Some(budget) = budgets.iter().find(|budget| budget.stage == *stage) else {
            verdict.faults.push(format!("{stage}: stands not in the table"));
            continue;
        };
        let Budget { instructions: known, most, .. } = *budget;
        let change = (instructions / known - 1.0) * 100.0;
        if *instructions > most {
            verdict.faults.push(format!(
                "{stage}: {} instructions, the table allows {} ({change:+.1} % over its figure)",
                number(*instructions),
                number(most)
            ));
        } else if *instructions < known * FALL_MIN {
            verdict.hints.push(format!(
                "{stage}: {} instructions, {:.1} % below the table's figure: lower that",
                number(*instructions),
                -change
            ));
        }
    }
    for Budget { stage, .. } in &budgets {
        if !figures.iter().any(|figure| figure.stage == *stage) {
            verdict.faults.push(format!("{stage}: stands in the table, and is no stage"));
        }
    }
    Ok(verdict)
}

/// The document with these figures in its table.
///
/// Errors: there is no such table.
pub fn update(document: &str, figures: &[Figure]) -> Result<String, String> {
    let (before, _, after) = split(document)?;
    Ok(format!("{before}{}{after}", rows(figures)))
}

/// The rows of the table.
pub fn rows(figures: &[Figure]) -> String {
    let mut text = String::new();
    for Figure { stage, unit, instructions, cpu_ns } in figures {
        let most = number(instructions * GROWTH_MAX);
        let (instructions, cpu_ns) = (number(*instructions), number(*cpu_ns));
        // Writing into a string cannot fail.
        let _ = writeln!(text, "| {stage} | {unit} | {instructions} | {most} | {cpu_ns} |");
    }
    text
}

/// With four significant digits at least.
fn number(value: f64) -> String {
    match value {
        1_000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// What stands before the rows of the table, the rows, and what stands after them.
fn split(document: &str) -> Result<(&str, Vec<&str>, &str), String> {
    let missing = || format!("there is no table that begins with {HEAD:?}");
    let head = document.find(HEAD).ok_or_else(missing)?;
    let mut lines = document[head..].split_inclusive('\n');
    let top: usize = lines.by_ref().take(2).map(str::len).sum();
    let rows: Vec<&str> = lines.take_while(|line| line.starts_with('|')).collect();
    let start = head + top;
    let end = start + rows.iter().map(|row| row.len()).sum::<usize>();
    Ok((&document[..start], rows, &document[end..]))
}

fn budget(row: &str) -> Result<Budget, String> {
    let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
    let number = |at: usize| cells.get(at)?.parse::<f64>().ok().filter(|n| *n > 0.0);
    match (cells.first(), number(2), number(3)) {
        (Some(stage), Some(instructions), Some(most)) => {
            Ok(Budget { stage: (*stage).to_owned(), instructions, most })
        }
        _ => Err(format!("a row of the table cannot be read: {row}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Title\n\n| stage | of a | instructions | at most | CPU ns |\n\
        |---|---|---:|---:|---:|\n| decode | sample | 20.00 | 21.00 | 4.00 |\n\
        | fold, rows | cell | 3.00 | 3.60 | 0.50 |\n\nThe end.\n";

    fn figure(stage: &str, instructions: f64) -> Figure {
        let unit = if stage == "decode" { "sample" } else { "cell" };
        Figure { stage: stage.to_owned(), unit: unit.to_owned(), instructions, cpu_ns: 0.5 }
    }

    #[track_caller]
    fn check(decode: f64, fold: f64, faults: &[&str], hints: &[&str]) {
        let figures = [figure("decode", decode), figure("fold, rows", fold)];
        let verdict = compare(DOCUMENT, &figures).unwrap();
        assert_eq!(verdict.faults, faults);
        assert_eq!(verdict.hints, hints);
    }

    #[test]
    fn growth_over_what_the_table_allows_is_a_fault() {
        check(20.0, 3.0, &[], &[]);
        check(21.0, 3.6, &[], &[]);
        check(19.1, 2.9, &[], &[]);
        let grown = "decode: 21.10 instructions, the table allows 21.00 (+5.5 % over its figure)";
        check(21.1, 3.0, &[grown], &[]);
        let fallen = "fold, rows: 2.00 instructions, 33.3 % below the table's figure: lower that";
        check(20.0, 2.0, &[], &[fallen]);
    }

    #[test]
    fn stages_and_rows_belong_together() {
        let verdict = compare(DOCUMENT, &[figure("decode", 20.0), figure("encode", 1.0)]).unwrap();
        assert_eq!(
            verdict.faults,
            ["encode: stands not in the table", "fold, rows: stands in the table, and is no stage"]
        );
        assert!(compare("# Title\n", &[]).unwrap_err().starts_with("there is no table"));
        let damaged = DOCUMENT.replace("20.00", "0");
        assert!(compare(&damaged, &[]).unwrap_err().contains("| decode | sample | 0 |"));
    }

    #[test]
    fn a_written_table_is_kept_by_what_it_was_written_for() {
        let figures = [figure("decode", 1234.567), figure("encode", 120.25), figure("x", 2.0)];
        let updated = update(DOCUMENT, &figures).unwrap();
        let rows = "| decode | sample | 1235 | 1296 | 0.50 |\n\
            | encode | cell | 120.2 | 126.3 | 0.50 |\n| x | cell | 2.00 | 2.10 | 0.50 |\n";
        assert!(updated.contains(rows), "{updated}");
        assert!(updated.starts_with("# Title\n\n| stage") && updated.ends_with("|\n\nThe end.\n"));
        assert_eq!(compare(&updated, &figures).unwrap(), Verdict::default());
    }
}
