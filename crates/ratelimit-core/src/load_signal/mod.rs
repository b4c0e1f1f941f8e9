//! Whether there is room for more than a limit grants.

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

/// Says whether there is room, by a load of this process or machine; clones share their state.
///
/// There is room until the load reaches a mark. From then on there is none until the load is below a
/// second mark, 80 % of the first unless [`resume_below`](LoadSignal::resume_below) says otherwise,
/// so that a load that swings between the two does not switch anything on and off.
///
/// Two signals are equal when they are clones of one.
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
#[derive(Clone)]
pub struct LoadSignal(Arc<LoadSignalInner>);

struct LoadSignalInner {
    source: LoadSource,
    full_from: u64,
    room_below: AtomicU64,
    is_full: AtomicBool,
}

enum LoadSource {
    InFlightGuard(AtomicU64),
    ProcessCpu(Cpu),
    MachineCpu(Cpu),
    Load(Box<dyn Fn() -> u64 + Send + Sync>),
}

impl LoadSignal {
    /// There is room while fewer than `at_most` requests are in flight in this process.
    ///
    /// A request is in flight from [`enter`](LoadSignal::enter) until its guard is dropped; one that enters
    /// before it asks counts itself.
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

    /// There is room while this process uses less than so many percent of all cores.
    ///
    /// Whoever asks measures, at most four times a second, over the time since the last measurement;
    /// there is no thread behind it. Cores are those of `/proc/stat`: in a container that may use a
    /// part of the machine's cores, so many percent of the machine. There is no room before the first
    /// quarter of a second is over, and on systems without a readable `/proc`, which is logged once.
    pub fn process_cpu(below_percent: u64) -> LoadSignal {
        let cpu = Cpu::measured_by(procfs::of_process);
        LoadSignal::from_source(LoadSource::ProcessCpu(cpu), below_percent)
    }

    /// There is room while less than so many percent of all cores of this machine are in use.
    ///
    /// Measured as by [`process_cpu`](LoadSignal::process_cpu). A core that waits for a disk is not in use;
    /// one that another virtual machine took is.
    pub fn machine_cpu(below_percent: u64) -> LoadSignal {
        let cpu = Cpu::measured_by(procfs::of_machine);
        LoadSignal::from_source(LoadSource::MachineCpu(cpu), below_percent)
    }

    /// There is room while what `load` returns is below `below`.
    ///
    /// The closure is called by every request that asks, and should answer at once.
    pub fn of(load: impl Fn() -> u64 + Send + Sync + 'static, below: u64) -> LoadSignal {
        LoadSignal::from_source(LoadSource::Load(Box::new(load)), below)
    }

    fn from_source(source: LoadSource, full_from: u64) -> LoadSignal {
        let signal = LoadSignal(Arc::new(LoadSignalInner {
            source,
            full_from,
            room_below: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
        }));
        signal.resume_below(full_from - full_from.div_ceil(5))
    }

    /// Once there is no room, there is room again when the load is below this mark.
    ///
    /// It is at least 1, and at most the mark from which there is no room. It holds for all clones.
    #[must_use]
    pub fn resume_below(self, load: u64) -> LoadSignal {
        let mark = load.min(self.0.full_from).max(1);
        self.0.room_below.store(mark, Ordering::Relaxed);
        self
    }

    /// Whether there is room.
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

    /// The load as it is now: requests, percent, or what the closure counts; nothing where it is not
    /// known.
    pub fn load(&self) -> Option<u64> {
        match &self.0.source {
            LoadSource::InFlightGuard(count) => Some(count.load(Ordering::Relaxed)),
            LoadSource::ProcessCpu(cpu) | LoadSource::MachineCpu(cpu) => cpu.percent(),
            LoadSource::Load(load) => Some(load()),
        }
    }

    /// Counts a request in flight until the guard is dropped; does nothing for other signals.
    pub fn enter(&self) -> InFlightGuard {
        InFlightGuard::entered(self)
    }

    /// Its name in metrics and logs: `in_flight`, `process_cpu`, `machine_cpu` or `load`.
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
        f.debug_struct("Signal")
            .field("name", &self.name())
            .field("full_from", &self.0.full_from)
            .field("room_again_below", &room_below)
            .finish()
    }
}

#[cfg(test)]
mod tests;
