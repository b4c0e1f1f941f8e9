//! The part of a page that is written by a program.

use std::fmt::{self, Write as _};

use super::Report;

/// The folder of the numbers and charts of the documentation, from the top of the repository.
pub const FOLDER: &str = "docs/bench";
/// The page with the table and the charts.
pub const PAGE: &str = "docs/explain/performance.md";

const BEGIN: &str = "<!-- written by `cargo xtask bench`: begin -->";
const END: &str = "<!-- written by `cargo xtask bench`: end -->";

/// The page with the report between its markers.
///
/// # Errors
///
/// When the markers are missing.
pub fn fill(page: &str, report: &Report) -> Result<String, MissingMarkers> {
    let (before, rest) = page.split_once(BEGIN).ok_or(MissingMarkers)?;
    let (_, after) = rest.split_once(END).ok_or(MissingMarkers)?;
    Ok(format!(
        "{before}{BEGIN}\n\n{}\n{END}{after}",
        written(report)
    ))
}

fn written(report: &Report) -> String {
    let circumstances = &report.circumstances;
    let mut text = format!(
        "`{}`, {} processors, Redis {}. A number in brackets is the least or the most of all rounds, the\n\
         one before them the median.\n\n{}",
        circumstances.command,
        circumstances.cores,
        circumstances.redis,
        report.table(),
    );
    for chart in &report.charts {
        let _ = write!(text, "\n![{}](../bench/{}.svg)\n", chart.title, chart.name);
    }
    text
}

/// A page without the two comments that say where the numbers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingMarkers;

impl fmt::Display for MissingMarkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the page lacks `{BEGIN}` or `{END}`")
    }
}

impl std::error::Error for MissingMarkers {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Circumstances, Row, Spread};

    fn report() -> Report {
        Report {
            circumstances: Circumstances {
                cores: 2,
                redis: "7.0.15".to_owned(),
                command: "cargo xtask bench".to_owned(),
            },
            rows: vec![Row::new("a hot key", "ns", Spread::exactly(42.0))],
            charts: Vec::new(),
        }
    }

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        let page = format!("# Speed\n{BEGIN}\nold\n{END}\nthe rest\n");

        let filled = fill(&page, &report()).unwrap();

        assert!(filled.starts_with("# Speed\n") && filled.ends_with("\nthe rest\n"));
        assert!(filled.contains("a hot key, ns") && !filled.contains("old"));
        assert_eq!(fill(&filled, &report()).unwrap(), filled);
    }

    #[test]
    fn a_page_without_markers_is_left_alone() {
        assert_eq!(fill("# Speed\n", &report()), Err(MissingMarkers));
    }
}
