//! Table of stages in `benches/README.md`: parsed, compared with figures, and updated.

use std::fmt::Write;

/// Start of the table's header.
const HEAD: &str = "| stage | of a |";
/// Maximum of a stage relative to its figure.
const GROWTH_MAX: f64 = 1.05;
/// A stage below this fraction of its figure should get a new one.
const FALL_MIN: f64 = 0.95;

/// Cost of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name of the stage.
    pub stage: String,
    /// Unit of the figures.
    pub unit: String,
    /// Instructions per unit.
    pub instructions: f64,
    /// CPU time per unit.
    pub cpu_ns: f64,
}

/// Row of the table.
#[derive(Debug, Clone, PartialEq)]
struct Budget {
    stage: String,
    instructions: f64,
    most: f64,
}

/// Result of a comparison.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    /// Stages that exceed the table or are missing from one side.
    pub faults: Vec<String>,
    /// Figures that should be lowered.
    pub hints: Vec<String>,
}

/// Compares figures with the table of a document.
///
/// Errors: the table is missing, or a row is malformed.
pub fn compare(document: &str, figures: &[Figure]) -> Result<Verdict, String> {
    let (_, rows, _) = split(document)?;
    let budgets = rows.iter().map(|row| budget(row)).collect::<Result<Vec<_>, _>>()?;
    let mut verdict = Verdict::default();
    for Figure { stage, instructions, .. } in figures {
        let Some(budget) = budgets.iter().find(|budget| budget.stage == *stage) else {
            verdict.faults.push(format!("{stage}: missing from the table"));
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
            verdict.faults.push(format!("{stage}: in the table, but not a stage"));
        }
    }
    Ok(verdict)
}

/// Returns the document with these figures in its table.
///
/// Errors: the table is missing.
pub fn update(document: &str, figures: &[Figure]) -> Result<String, String> {
    let (before, _, after) = split(document)?;
    Ok(format!("{before}{}{after}", rows(figures)))
}

/// Formats the rows of the table.
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

/// Formats a number with at least three significant digits.
fn number(value: f64) -> String {
    match value {
        1_000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Splits a document into the text before the rows, the rows, and the text after them.
fn split(document: &str) -> Result<(&str, Vec<&str>, &str), String> {
    let missing = || format!("no table begins with {HEAD:?}");
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
        _ => Err(format!("malformed row of the table: {row}")),
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
    fn growth_over_the_maximum_is_a_fault() {
        check(20.0, 3.0, &[], &[]);
        check(21.0, 3.6, &[], &[]);
        check(19.1, 2.9, &[], &[]);
        let grown = "decode: 21.10 instructions, the table allows 21.00 (+5.5 % over its figure)";
        check(21.1, 3.0, &[grown], &[]);
        let fallen = "fold, rows: 2.00 instructions, 33.3 % below the table's figure: lower that";
        check(20.0, 2.0, &[], &[fallen]);
    }

    #[test]
    fn stages_and_rows_match() {
        let verdict = compare(DOCUMENT, &[figure("decode", 20.0), figure("encode", 1.0)]).unwrap();
        assert_eq!(
            verdict.faults,
            ["encode: missing from the table", "fold, rows: in the table, but not a stage"]
        );
        assert!(compare("# Title\n", &[]).unwrap_err().starts_with("no table begins with"));
        let damaged = DOCUMENT.replace("20.00", "0");
        assert!(compare(&damaged, &[]).unwrap_err().contains("| decode | sample | 0 |"));
    }

    #[test]
    fn figures_pass_their_own_table() {
        let figures = [figure("decode", 1234.567), figure("encode", 120.25), figure("x", 2.0)];
        let updated = update(DOCUMENT, &figures).unwrap();
        let rows = "| decode | sample | 1235 | 1296 | 0.50 |\n\
            | encode | cell | 120.2 | 126.3 | 0.50 |\n| x | cell | 2.00 | 2.10 | 0.50 |\n";
        assert!(updated.contains(rows), "{updated}");
        assert!(updated.starts_with("# Title\n\n| stage") && updated.ends_with("|\n\nThe end.\n"));
        assert_eq!(compare(&updated, &figures).unwrap(), Verdict::default());
    }
}
