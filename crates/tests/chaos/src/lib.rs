//! Two gateways under a plan of faults, with clients that know each byte of the right response.
//!
//! A run is determined by its seed: the order of the [faults](Fault), their targets, and the requests. After each fault, the load
//! pauses at a checkpoint, which checks the invariants: no wrong byte, no response of another request, failures of the permitted
//! kinds and within the time of recovery alone, an end of each request within its deadline, the same counts at clients and in the
//! metrics, and the same number of descriptors and amount of memory as before. `docs/chaos.md` describes faults and invariants.

mod ask;
mod checkpoint;
mod fault;
mod floods;
mod gateway;
mod load;
mod plan;
mod processes;
mod report;
mod run;
mod shared;
mod strike;
pub mod upstream;
mod visitor;
mod world;

pub use fault::Fault;
pub use plan::{Plan, Step};
pub use report::Report;
pub use run::{Options, run};
