//! Load signals for elastic throttles.

mod cpu;
mod in_flight;
mod procfs;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use self::in_flight::InFlightGuard;
use crate::load_signal::cpu::Cpu;

/// A load of this process or machine, and whether it leaves capacity. Clones share their state.
///
/// - There is capacity until the load reaches a mark. It then returns only when the load falls
///   below a second mark, 80 % of the first unless [`resume_below`](LoadSignal::resume_below)
///   changes it. This hysteresis keeps a load that swings around one mark from switching on and
///   off.
/// - An unknown load means no capacity.
/// - Two signals are equal when they are clones of one.
///
/// A [`Throttle::Elastic`](crate::Throttle::Elastic) admits its headroom while its signal has
/// capacity.
///
/// ```
/// use ratelimit_core::LoadSignal;
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// let queued = Arc::new(AtomicU64::new(0));
/// let its = Arc::clone(&queued);
/// let signal = LoadSignal::of(move || its.load(Ordering::Relaxed), 100).resume_below(50);
///
/// assert!(signal.has_capacity());
/// queued.store(100, Ordering::Relaxed);
/// assert!(!signal.has_capacity());
/// queued.store(50, Ordering::Relaxed);
/// assert!(!signal.has_capacity());
/// queued.store(49, Ordering::Relaxed);
/// assert!(signal.has_capacity());
/// ```
#[doc(alias = "hysteresis")]
#[derive(Clone)]
pub struct LoadSignal(Arc<LoadSignalInner>);

/// The shared state of all clones.
struct LoadSignalInner {
    /// The measured load.
    source: LoadSource,
    /// There is no capacity from this load on.
    full_from: u64,
    /// Capacity returns below this load; at most `full_from`.
    room_below: AtomicU64,
    /// The last answer, which selects the mark of the next one.
    is_full: AtomicBool,
}

/// The measured load.
enum LoadSource {
    /// The requests between `enter` and the drop of their guards.
    InFlightGuard(AtomicU64),
    /// Percent of all cores used by this process.
    ProcessCpu(Cpu),
    /// Percent of all cores in use.
    MachineCpu(Cpu),
    /// The closure of an application.
    Load(Box<dyn Fn() -> u64 + Send + Sync>),
}

impl LoadSignal {
    /// Has capacity while fewer than `at_most` requests are in flight in this process.
    ///
    /// A request is in flight from [`enter`](LoadSignal::enter) until its guard is dropped. A
    /// request that enters before its check counts itself.
    ///
    /// ```
    /// use ratelimit_core::LoadSignal;
    ///
    /// let signal = LoadSignal::in_flight(2);
    /// let (one, two) = (signal.enter(), signal.enter());
    /// assert!(!signal.has_capacity());
    /// drop((one, two));
    /// assert!(signal.has_capacity());
    /// ```
    pub fn in_flight(at_most: usize) -> LoadSignal {
        let at_most = u64::try_from(at_most).unwrap_or(u64::MAX);
        LoadSignal::from_source(LoadSource::InFlightGuard(AtomicU64::new(0)), at_most)
    }

    /// Has capacity while this process uses less than `below_percent` of all cores.
    ///
    /// - A caller measures, at most four times a second, over the time since the last measurement.
    ///   There is no background thread.
    /// - The cores are those of `/proc/stat`. In a container with a CPU quota the percentage is
    ///   still that of the whole machine.
    /// - There is no capacity in the first quarter of a second, and on systems without a readable
    ///   `/proc`, which is logged once.
    pub fn process_cpu(below_percent: u64) -> LoadSignal {
        let cpu = Cpu::measured_by(procfs::of_process);
        LoadSignal::from_source(LoadSource::ProcessCpu(cpu), below_percent)
    }

    /// Has capacity while less than `below_percent` of all cores of this machine are in use.
    ///
    /// It is measured as [`process_cpu`](LoadSignal::process_cpu) is. Time spent waiting for disks
    /// is idle; time stolen by other virtual machines is in use.
    pub fn machine_cpu(below_percent: u64) -> LoadSignal {
        let cpu = Cpu::measured_by(procfs::of_machine);
        LoadSignal::from_source(LoadSource::MachineCpu(cpu), below_percent)
    }

    /// Has capacity while the number that `load` returns is below `below`.
    ///
    /// Every check of an elastic policy calls the closure, so it must be fast and must not block.
    pub fn of(load: impl Fn() -> u64 + Send + Sync + 'static, below: u64) -> LoadSignal {
        LoadSignal::from_source(LoadSource::Load(Box::new(load)), below)
    }

    /// A signal whose second mark is 80 % of the first, rounded down.
    fn from_source(source: LoadSource, full_from: u64) -> LoadSignal {
        let signal = LoadSignal(Arc::new(LoadSignalInner {
            source,
            full_from,
            room_below: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        }));
        signal.resume_below(full_from - full_from.div_ceil(5))
    }

    /// Sets the load below which capacity returns, for all clones.
    ///
    /// It is at least 1, and at most the mark from which there is no capacity.
    #[must_use]
    pub fn resume_below(self, load: u64) -> LoadSignal {
        let mark = load.min(self.0.full_from).max(1);
        self.0.room_below.store(mark, Ordering::Relaxed);
        self
    }

    /// Whether there is capacity now. The answer also selects the mark for the next call
    /// (hysteresis).
    pub fn has_capacity(&self) -> bool {
        let Some(load) = self.load() else {
            return false;
        };
        let was_full = self.0.is_full.load(Ordering::Relaxed);
        let mark = if was_full {
            self.0.room_below.load(Ordering::Relaxed)
        } else {
            self.0.full_from
        };
        let is_full = load >= mark;
        // Two threads may both see the change and log it. Neither waits for the other, and the
        // state is the same.
        if is_full != was_full {
            self.0.is_full.store(is_full, Ordering::Relaxed);
            tracing::debug!(
                signal = self.name(),
                load,
                has_room = !is_full,
                "load changed"
            );
        }
        !is_full
    }

    /// The present load: requests, percent, or the number of the closure; `None` if it is unknown.
    pub fn load(&self) -> Option<u64> {
        match &self.0.source {
            LoadSource::InFlightGuard(count) => Some(count.load(Ordering::Relaxed)),
            LoadSource::ProcessCpu(cpu) | LoadSource::MachineCpu(cpu) => cpu.percent(),
            LoadSource::Load(load) => Some(load()),
        }
    }

    /// Counts a request in flight until the guard is dropped. The guard of any other signal does
    /// nothing.
    pub fn enter(&self) -> InFlightGuard {
        InFlightGuard::entered(self)
    }

    /// The name in metrics and logs: `in_flight`, `process_cpu`, `machine_cpu` or `load`.
    pub fn name(&self) -> &'static str {
        match &self.0.source {
            LoadSource::InFlightGuard(_) => "in_flight",
            LoadSource::ProcessCpu(_) => "process_cpu",
            LoadSource::MachineCpu(_) => "machine_cpu",
            LoadSource::Load(_) => "load",
        }
    }
}

impl PartialEq for LoadSignal {
    fn eq(&self, other: &LoadSignal) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LoadSignal {}

impl fmt::Display for LoadSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for LoadSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room_below = self.0.room_below.load(Ordering::Relaxed);
        f.debug_struct("LoadSignal")
            .field("name", &self.name())
            .field("full_from", &self.0.full_from)
            .field("room_again_below", &room_below)
            .finish()
    }
}

#[cfg(test)]
mod tests;
