//! Tests of the delta stream: rules that only this variant has, or that it keeps in its own way.
//! Rules of both variants are in [`crate::scenarios`].

#[cfg(test)]
mod answers;
mod client;
#[cfg(test)]
mod comparison;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod order;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod subscriptions;
