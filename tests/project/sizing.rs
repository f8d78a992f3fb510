//! The table of docs/sizing.md, computed again by its formulas.

use super::compose::text;

/// Days for which samples are kept.
const DAYS: f64 = 30.0;
const GIB: f64 = 1_073_741_824.0;

/// Memory in GiB, cores, GB on disk, $ a month.
fn computed(series: f64, interval_seconds: f64) -> [f64; 4] {
    let rate = series / interval_seconds;
    let log_bytes = 512.0 * 1_048_576.0;
    let in_head = (series * 9000.0 / interval_seconds).min(log_bytes / 6.3);
    let memory = (series * 1153.0 + 4.77 * in_head) / GIB;
    let gigabytes = |bytes_per_sample: f64| bytes_per_sample * rate * 86_400.0 / 1e9;
    let compacted = gigabytes(1.50 * DAYS);
    [memory, rate * 1.32e-6, compacted + gigabytes(4.06), compacted * 0.023]
}

#[test]
fn the_table_of_sizes_follows_its_formulas() {
    let page = text("docs/sizing.md");
    let table = page.split("## Table").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && line.contains(" s |"));
    let mut count = 0;
    for row in rows {
        let number = |cell: &str| {
            let digits = cell.trim().trim_end_matches(" s").replace(',', "");
            digits.parse::<f64>().unwrap_or_else(|_| panic!("{cell:?} of {row}"))
        };
        let cells: Vec<f64> = row.trim_matches('|').split('|').map(number).collect();
        let [series, interval, rate, figures @ ..] = &cells[..] else { panic!("{row}") };
        assert!((rate - series / interval).abs() <= 0.5, "{row}");
        let computed = computed(*series, *interval);
        assert_eq!(figures.len(), computed.len(), "{row}");
        for (figure, computed) in figures.iter().zip(computed) {
            // Figures have two to three digits.
            let rounding = (0.005 * computed).max(0.005);
            assert!((figure - computed).abs() <= rounding, "{computed} in {row}");
        }
        count += 1;
    }
    assert_eq!(count, 8);
    // Requests: a month has 2.63 M seconds.
    let month = 2.63;
    for (dollars, writes, reads) in [(18.1, 1.1, 3.5), (1.47, 0.0, 1.4)] {
        let computed = month * (writes * 5.0 + reads * 0.4);
        assert!((dollars - computed) / computed < 0.01, "{computed}");
        assert!(page.contains(&format!(" {dollars} |")), "{dollars}");
    }
}
