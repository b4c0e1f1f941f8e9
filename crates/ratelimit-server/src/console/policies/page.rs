//! Pages of a sorted list.

use std::{borrow::Cow, cmp::Ordering};

use super::catalog::CatalogEntry;
use crate::{api_error::ApiError, app::App, query::Query, sampler::PolicyRates};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The parameters of a page.
pub(super) struct PageRequest<'q> {
    /// In lower case; empty for all.
    text: String,
    sort: Sort,
    after: Option<Cow<'q, str>>,
    limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Name,
    Checks,
    Denied,
    WouldDeny,
}

/// A page, the number of all entries that match, and the cursor of the next page.
pub(super) struct Page<'a> {
    pub(super) entries: Vec<CatalogEntry<'a>>,
    pub(super) total: usize,
    pub(super) next: Option<String>,
}

/// An entry with the number that it is sorted by, highest first; 0 if it is sorted by name.
type Ranked<'a> = (f64, CatalogEntry<'a>);

impl<'q> PageRequest<'q> {
    pub(super) fn new(query: Query<'q>) -> Result<PageRequest<'q>, ApiError> {
        let text = query.one("q")?.unwrap_or_default();
        let sort = query.one("sort")?;
        let limit = query.one("limit")?;
        Ok(PageRequest {
            text: text.to_lowercase(),
            sort: sort.map_or(Ok(Sort::Name), |text| Sort::parse(&text))?,
            after: query.one("after")?.filter(|after| !after.is_empty()),
            limit: limit.map_or(Ok(DEFAULT_LIMIT), |text| parse_limit(&text))?,
        })
    }

    /// The page of these entries, which are ordered by name.
    pub(super) fn of<'a>(&self, app: &App, entries: Vec<CatalogEntry<'a>>) -> Page<'a> {
        let matching = entries.into_iter().filter(|entry| self.matches(entry));
        let mut ranked: Vec<Ranked<'a>> = matching
            .map(|entry| (self.sort.rank(app, entry.name()), entry))
            .collect();
        let total = ranked.len();
        if self.sort != Sort::Name {
            ranked.sort_by(|one, other| compare((one.0, one.1.name()), (other.0, other.1.name())));
        }
        let start = self.start(app).map_or(0, |start| {
            let is_before = |one: &Ranked<'_>| compare((one.0, one.1.name()), start).is_le();
            ranked.partition_point(is_before)
        });
        let mut rest = ranked.drain(start..);
        let page: Vec<Ranked<'a>> = rest.by_ref().take(self.limit).collect();
        let has_more = rest.next().is_some();
        let last = page.last().filter(|_| has_more);
        let next = last.map(|(rank, entry)| match self.sort {
            Sort::Name => entry.name().to_owned(),
            _ => format!("{rank}:{}", entry.name()),
        });
        Page {
            entries: page.into_iter().map(|(_, entry)| entry).collect(),
            total,
            next,
        }
    }

    fn matches(&self, entry: &CatalogEntry<'_>) -> bool {
        self.text.is_empty()
            || entry.name().to_lowercase().contains(&self.text)
            || entry.policy.to_string().to_lowercase().contains(&self.text)
    }

    /// The rank and the name that the page begins after.
    ///
    /// Ranks change from second to second. A cursor has the rank of its entry, so that the entries behind it are the same
    /// whatever became of that entry. A plain name has its rank of this moment.
    fn start(&self, app: &App) -> Option<(f64, &str)> {
        let after = self.after.as_deref()?;
        let cursor = after.split_once(':').filter(|_| self.sort != Sort::Name);
        let cursor = cursor.and_then(|(rank, name)| {
            let rank: Option<f64> = rank.parse().ok();
            // `inf` and `nan` can begin a name.
            Some((rank.filter(|rank| rank.is_finite())?, name))
        });
        Some(cursor.unwrap_or_else(|| (self.sort.rank(app, after), after)))
    }
}

impl Sort {
    fn parse(text: &str) -> Result<Sort, ApiError> {
        match text {
            "name" => Ok(Sort::Name),
            "checks" => Ok(Sort::Checks),
            "denied" => Ok(Sort::Denied),
            "wouldDeny" => Ok(Sort::WouldDeny),
            _ => Err(ApiError::bad_request(
                "sort must be name, checks, denied or wouldDeny",
            )),
        }
    }

    fn rank(self, app: &App, name: &str) -> f64 {
        let rate: fn(&PolicyRates) -> f64 = match self {
            Sort::Name => return 0.0,
            Sort::Checks => |rates| rates.checks,
            Sort::Denied => |rates| rates.denied,
            Sort::WouldDeny => |rates| rates.would_deny,
        };
        rate(&app.policy_rates(name))
    }
}

/// Higher ranks first, equal ones by name.
fn compare(one: (f64, &str), other: (f64, &str)) -> Ordering {
    other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1))
}

fn parse_limit(text: &str) -> Result<usize, ApiError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = is_number.then(|| text.parse().ok()).flatten();
    let limit = limit.filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| {
        ApiError::bad_request(format!(
            "limit must be a whole number from 1 to {MAX_LIMIT}"
        ))
    })
}
