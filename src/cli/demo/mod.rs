//! demo
mod answer;
mod load;
mod receiver;
mod scenario;
mod verify;
