//! The console.

mod live;
