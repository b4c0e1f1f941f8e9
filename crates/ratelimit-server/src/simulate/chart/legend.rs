//! The texts above a panel: its title, the counts of hits, and the names of lines.

use super::{ChartRun, LEFT, RIGHT, ROW, line_colours::LineColours};
use crate::{
    simulate::hit_outcome::HitOutcome,
    svg::{Anchor, Svg, Tenths, text_width},
};

/// The title begins left of the plots.
const TITLE_LEFT: i64 = 16;

/// Rows of text.
pub(super) struct Legend {
    titles: Vec<String>,
    rows: Vec<Vec<LegendEntry>>,
}

#[derive(Clone)]
struct LegendEntry {
    class: &'static str,
    text: String,
    has_swatch: bool,
}

impl LegendEntry {
    /// The width in pixels, with the distance to the next.
    fn width(&self) -> i64 {
        let swatch = if self.has_swatch { 20 } else { 0 };
        swatch + text_width(&self.text) + 14
    }
}

impl Legend {
    pub(super) fn new(run: &ChartRun<'_>, colours: &LineColours<'_>) -> Legend {
        let mut rows = in_rows(counts(run));
        let budgets = &run.replay.budgets;
        if budgets.len() > 1 {
            let names = budgets.iter().map(|budget| LegendEntry {
                class: colours.class(&budget.name),
                text: shortened(&budget.name),
                has_swatch: true,
            });
            rows.extend(in_rows(names.collect()));
        }
        Legend {
            titles: wrapped(run.title),
            rows,
        }
    }

    pub(super) fn height(&self) -> i64 {
        let rows = i64::try_from(self.titles.len() + self.rows.len()).unwrap_or(0);
        8 + ROW * rows
    }

    pub(super) fn draw(&self, svg: &mut Svg, top: i64) {
        let mut y = top + 8;
        for title in &self.titles {
            y += ROW;
            let at = (Tenths::px(TITLE_LEFT), Tenths::px(y));
            svg.text(at, Anchor::Start, "t", title);
        }
        for row in &self.rows {
            y += ROW;
            let mut x = LEFT;
            for entry in row {
                let mut text_x = x;
                if entry.has_swatch {
                    text_x += 20;
                    let (class, middle) = (entry.class, y - 4);
                    svg.add(format_args!(
                        "<path class=\"ln {class}\" d=\"M{x} {middle}h14\"/>"
                    ));
                }
                let class = match entry.class {
                    "" => String::new(),
                    class => format!("n {class}"),
                };
                let at = (Tenths::px(text_x), Tenths::px(y));
                svg.text(at, Anchor::Start, &class, &entry.text);
                x += entry.width();
            }
        }
    }
}

/// The counts of hits by outcome, without those that are 0.
fn counts(run: &ChartRun<'_>) -> Vec<LegendEntry> {
    let counts = HitOutcome::ALL.map(|outcome| (outcome, run.summary.hits.get(outcome)));
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let mut entries: Vec<LegendEntry> = counts
        .map(|(outcome, count)| LegendEntry {
            class: class_of(outcome),
            text: format!("{count} {}", outcome.as_str()),
            has_swatch: false,
        })
        .collect();
    if entries.is_empty() {
        entries.push(LegendEntry {
            class: "",
            text: "no hits".to_owned(),
            has_swatch: false,
        });
    }
    entries
}

/// The class of the colour of an outcome. An impossible hit is denied.
pub(super) const fn class_of(outcome: HitOutcome) -> &'static str {
    match outcome {
        HitOutcome::Impossible => HitOutcome::Denied.as_str(),
        outcome => outcome.as_str(),
    }
}

fn in_rows(entries: Vec<LegendEntry>) -> Vec<Vec<LegendEntry>> {
    let mut rows: Vec<Vec<LegendEntry>> = Vec::new();
    let mut used = 0;
    for entry in entries {
        let width = entry.width();
        match rows.last_mut() {
            Some(row) if used + width <= RIGHT - LEFT => {
                used += width;
                row.push(entry);
            }
            _ => {
                used = width;
                rows.push(vec![entry]);
            }
        }
    }
    rows
}

/// A name that fits into a row.
fn shortened(name: &str) -> String {
    let most = RIGHT - LEFT - 60;
    let mut short = String::new();
    for character in name.chars() {
        if text_width(&short) > most {
            short.push_str("...");
            break;
        }
        short.push(character);
    }
    short
}

/// A title in rows, with breaks between words.
fn wrapped(title: &str) -> Vec<String> {
    let fits = |text: &str| text_width(text) * 7 / 6 <= RIGHT - TITLE_LEFT;
    let mut rows = vec![String::new()];
    for word in title.split(' ') {
        let word = shortened(word);
        let row = rows.last_mut().map_or("", |row| &*row);
        let longer = match row {
            "" => word.clone(),
            row => format!("{row} {word}"),
        };
        if row.is_empty() || fits(&longer) {
            rows.pop();
            rows.push(longer);
        } else {
            rows.push(word);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_has_several_rows() {
        let title = ["fixed_window 100/min"; 12].join("; ");

        let rows = wrapped(&title);

        assert!(rows.len() > 2, "{rows:?}");
        assert_eq!(rows.join(" "), title);
        assert_eq!(wrapped("short"), ["short"]);
        assert_eq!(wrapped(&"w".repeat(500))[0].len(), 55);
    }
}
