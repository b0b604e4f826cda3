//! The delta stream against the rules that only this variant has, or that it keeps in a way of its own.
//! What it has in common with the other is in [`crate::scenarios`].

mod answers;
mod client;
mod limits;
mod order;
mod reconnect;
mod subscriptions;
