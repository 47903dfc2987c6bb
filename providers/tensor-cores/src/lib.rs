//! The functions of webgpu.h (and of wgpu-native's wgpu.h) that Doppler calls, over the crate wgpu with one thing
//! more than wgpu-native allows: cooperative matrices, which wgpu counts as an experiment. A program that is linked with
//! wgpu-native takes this library in its place when it finds it first, for it has the same name and the same functions.
//!
//! Handles are counted references (handle.rs). What Doppler does not pass (textures, constants, most chained structs) is
//! not looked at. Errors come through the device's callback; a handle that a failed call returns is safe to release.
//!
//! Safety: the header's rules. Pointers come from the caller and are what the header says.
#![allow(clippy::missing_safety_doc)]

pub mod abi;
pub mod buffer;
pub mod commands;
pub mod device;
pub mod handle;
pub mod instance;
pub mod kernel;

/// 29.0.4 of wgpu, and 0xD1: the first of this library's own, which counts on from there. provider.cpp knows it.
const VERSION: u32 = 29 << 24 | 4 << 8 | 0xD1;

#[no_mangle]
pub extern "C" fn wgpuGetVersion() -> u32 {
    VERSION
}

/// There is no log to set a level of.
#[no_mangle]
pub extern "C" fn wgpuSetLogLevel(_level: u32) {}
