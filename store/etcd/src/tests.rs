mod attacks;
mod batches;
mod model;
mod settling;
