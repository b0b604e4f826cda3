//! The state-of-the-world stream against the rules that only this variant has, or that it keeps in a way
//! of its own. What it has in common with delta is in [`crate::scenarios`].

#[cfg(test)]
mod answers;
mod client;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod order;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod subscriptions;
