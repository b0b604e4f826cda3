//! The reconciler as a whole, with clients that are simulated.

mod clock;
mod place;
mod refusals;
