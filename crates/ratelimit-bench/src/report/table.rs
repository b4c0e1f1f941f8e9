//! Rows as a table.

use std::fmt::Write as _;

use super::{Goal, Report, Row, Spread};

const HEAD: [&str; 6] = ["what", "ours", "beside", "ratio", "goal", "met"];

impl Report {
    /// The rows as Markdown, which is readable as it stands.
    pub fn table(&self) -> String {
        let cells: Vec<[String; 6]> = self.rows.iter().map(cells).collect();
        let width = |column: usize| {
            let of_cells = cells.iter().map(|row| row[column].chars().count());
            of_cells.chain([HEAD[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut table = line(&HEAD.map(str::to_owned), &widths);
        table.push_str(&line(&widths.map(|width| "-".repeat(width)), &widths));
        for row in &cells {
            table.push_str(&line(row, &widths));
        }
        table
    }
}

fn line(cells: &[String; 6], widths: &[usize; 6]) -> String {
    let mut line = String::from("|");
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(line, " {cell:<width$} |");
    }
    line.push('\n');
    line
}

fn cells(row: &Row) -> [String; 6] {
    let peer = row.peer.as_ref();
    [
        format!("{}, {}", row.what, row.unit),
        shown(row.ours),
        peer.map_or_else(String::new, |peer| {
            format!("{}: {}", peer.name, shown(peer.number))
        }),
        row.ratio()
            .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        row.goal.map_or_else(String::new, goal),
        match row.is_met() {
            Some(true) => "yes".to_owned(),
            Some(false) => "NO".to_owned(),
            None => String::new(),
        },
    ]
}

fn shown(spread: Spread) -> String {
    let middle = number(spread.median);
    let (low, high) = (number(spread.low), number(spread.high));
    if low == high {
        return middle;
    }
    format!("{middle} ({low} to {high})")
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::AtMost(most) => format!("<= {}", number(most)),
        Goal::AtLeast(least) => format!(">= {}", number(least)),
        Goal::RatioAtMost(most) => format!("<= {most} x"),
        Goal::RatioAtLeast(least) => format!(">= {least} x"),
    }
}

/// With as many digits as mean something: `46,612`, `46.6`, `0.466`.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    if value.abs() < 1_000.0 {
        let text = format!("{value:.1}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.split_at(usize::from(value < 0.0));
    let mut text = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Circumstances;

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!(number(46_612.4), "46,612");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(-1_483.0), "-1,483");
        assert_eq!(number(46.62), "46.6");
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(3.0), "3");
    }

    #[test]
    fn a_table_says_what_was_measured_and_whether_it_is_enough() {
        let spread = Spread::of(&[20.0, 30.0, 50.0]);
        let rows = vec![
            Row::new("a hot key", "ns", spread)
                .beside("governor", Spread::exactly(60.0))
                .goal(Goal::RatioAtMost(0.7)),
            Row::new("bytes a key", "bytes", Spread::exactly(90.0)).goal(Goal::AtMost(88.0)),
        ];
        let circumstances = Circumstances {
            cores: 2,
            redis: "7.0.15".to_owned(),
            command: "cargo xtask bench".to_owned(),
        };
        let report = Report {
            circumstances,
            rows,
            charts: Vec::new(),
        };

        let table = report.table();

        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[2].contains("| 30 (20 to 50) | governor: 60 | 0.50  | <= 0.7 x | yes |"));
        assert!(lines[3].contains("| <= 88    | NO  |"));
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }
}
