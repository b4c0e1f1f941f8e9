//! Measurements, and their JSON, tables and charts.

mod chart;
mod drawing;
mod json;
mod page;
mod row;
mod spread;
mod table;

pub use self::{
    chart::{Chart, Scale, Series},
    json::InvalidReport,
    page::{FOLDER, MissingMarkers, PAGE, fill},
    row::{Goal, Peer, Row},
    spread::{Spread, in_turn},
};

/// Where and how a run was made.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The processors that it had.
    pub cores: usize,
    /// The version of the redis-server.
    pub redis: String,
    /// The command that repeats it.
    pub command: String,
}

/// All that one run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where and how.
    pub circumstances: Circumstances,
    /// One number of ours each, with a peer's or a goal beside it.
    pub rows: Vec<Row>,
    /// How numbers grow.
    pub charts: Vec<Chart>,
}

impl Report {
    /// The report with its numbers rounded as `bench.json` has them, so that all ratios are those of the file.
    #[must_use]
    pub fn rounded(mut self) -> Report {
        for row in &mut self.rows {
            row.ours = row.ours.map(rounded);
            if let Some(peer) = &mut row.peer {
                peer.number = peer.number.map(rounded);
            }
        }
        let series = self.charts.iter_mut().flat_map(|chart| &mut chart.series);
        for (_, spread) in series.flat_map(|series| &mut series.points) {
            *spread = spread.map(rounded);
        }
        self
    }

    /// The files of a report by their names: `bench.json`, and a drawing of each chart.
    pub fn files(&self) -> Vec<(String, String)> {
        let json = ("bench.json".to_owned(), format!("{:#}\n", self.json()));
        let drawings = self.charts.iter().map(|chart| {
            let svg = drawing::draw(chart, &self.circumstances);
            (format!("{}.svg", chart.name), svg)
        });
        std::iter::once(json).chain(drawings).collect()
    }
}

/// A thousandth is finer than anything measured here.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    fn docs() -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs"]
            .iter()
            .collect()
    }

    #[test]
    fn a_rounded_report_has_the_ratios_of_its_file() {
        let row = Row::new("a hot key", "ns", Spread::exactly(0.0014));
        let row = row.beside("governor", Spread::exactly(0.0026));
        let measured = Report {
            circumstances: Circumstances {
                cores: 2,
                redis: "7.0.15".to_owned(),
                command: "cargo xtask bench".to_owned(),
            },
            rows: vec![row],
            charts: Vec::new(),
        };

        let rounded = measured.clone().rounded();

        let stored: serde_json::Value =
            serde_json::from_str(&rounded.files()[0].1).expect("bench.json");
        let redrawn = Report::from_json(&stored).expect("a report");
        assert_eq!(redrawn.files(), rounded.files());
        assert_eq!(redrawn.table(), rounded.table());
        assert_ne!(measured.table(), rounded.table(), "0.54 and 0.33");
    }

    #[test]
    fn charts_and_tables_of_the_documentation_are_those_of_the_stored_numbers() {
        let numbers = fs::read(docs().join("bench/bench.json")).unwrap();
        let report = Report::from_json(&serde_json::from_slice(&numbers).unwrap()).unwrap();

        let files = report.files();

        for (name, text) in &files {
            let kept = fs::read_to_string(docs().join("bench").join(name));
            assert!(
                kept.is_ok_and(|kept| kept == *text),
                "{name}: cargo xtask bench --redraw"
            );
        }
        let kept = fs::read_dir(docs().join("bench")).unwrap().count();
        assert_eq!(kept, files.len(), "a file of an older run");
        let page = fs::read_to_string(docs().join("explain/performance.md")).unwrap();
        assert!(
            fill(&page, &report).unwrap() == page,
            "the page: cargo xtask bench --redraw"
        );
    }
}
