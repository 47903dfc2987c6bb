//! The device: how it is asked for, its errors, its queue, and waiting.
use crate::abi;
use crate::commands::Commands;
use crate::handle;
use crate::instance::{feature, pollster};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    lost: Arc<AtomicBool>,
    errors: Option<Arc<Program<abi::ErrorCallback>>>,
}

impl Device {
    /// wgpu says nothing of what is made on a device that is gone; programs rely on an error.
    pub fn tell_if_lost(&self) {
        if let (true, Some(errors)) = (self.lost.load(Ordering::Acquire), &self.errors) {
            errors.call(5, "Parent device is lost");
        }
    }
}

/// A callback of the program's with its data, which may be called from any thread: the header says so.
struct Program<F> {
    callback: F,
    data: [*mut c_void; 2],
}
unsafe impl<F> Send for Program<F> {}
unsafe impl<F> Sync for Program<F> {}

impl Program<abi::ErrorCallback> {
    fn call(&self, kind: u32, message: &str) {
        let no_device: *const c_void = std::ptr::null();
        unsafe { (self.callback)(&no_device, kind, abi::StringView::of(message), self.data[0], self.data[1]) }
    }
}

fn limits(wanted: &abi::Limits, offered: wgpu::Limits) -> wgpu::Limits {
    // Those of computing; whatever else the adapter offers is not asked for less of.
    wgpu::Limits {
        max_bind_groups: wanted.bind_groups,
        max_bindings_per_bind_group: wanted.bindings_per_group,
        max_storage_buffers_per_shader_stage: wanted.storage_buffers,
        max_storage_buffer_binding_size: wanted.storage_binding,
        min_storage_buffer_offset_alignment: wanted.storage_alignment,
        max_buffer_size: wanted.buffer_size,
        max_compute_workgroup_storage_size: wanted.workgroup_storage,
        max_compute_invocations_per_workgroup: wanted.invocations,
        max_compute_workgroup_size_x: wanted.workgroup_x,
        max_compute_workgroup_size_y: wanted.workgroup_y,
        max_compute_workgroup_size_z: wanted.workgroup_z,
        max_compute_workgroups_per_dimension: wanted.workgroups_per_dimension,
        ..offered
    }
}

unsafe fn open(adapter: &wgpu::Adapter, given: Option<&abi::DeviceDescriptor>) -> Result<Device, String> {
    let mut descriptor = wgpu::DeviceDescriptor::default();
    if let Some(given) = given {
        for i in 0..given.feature_count {
            let number = *given.features.add(i);
            descriptor.required_features |=
                feature(adapter, number).ok_or_else(|| format!("the adapter has no feature {number:#x}"))?;
        }
        if let Some(wanted) = given.limits.as_ref() {
            descriptor.required_limits = limits(wanted, adapter.limits());
        }
    }
    if descriptor.required_features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        // What wgpu asks of who says so: to know that it may go wrong. Each kernel that uses it is checked at load.
        descriptor.experimental_features = wgpu::ExperimentalFeatures::enabled();
    }
    let (device, queue) = pollster(adapter.request_device(&descriptor)).map_err(|e| e.to_string())?;
    let lost = Arc::new(AtomicBool::new(false));
    let Some(given) = given else { return Ok(Device { device, queue, lost, errors: None }) };
    let mut errors = None;
    if let Some(callback) = given.error.callback {
        let program = Arc::new(Program { callback, data: [given.error.userdata1, given.error.userdata2] });
        errors = Some(program.clone());
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let kind = match error {
                wgpu::Error::Validation { .. } => 2,
                wgpu::Error::OutOfMemory { .. } => 3,
                wgpu::Error::Internal { .. } => 4,
            };
            program.call(kind, &error.to_string());
        }));
    }
    if let Some(callback) = given.lost.callback {
        let program = Program { callback, data: [given.lost.userdata1, given.lost.userdata2] };
        let flag = lost.clone();
        device.set_device_lost_callback(move |reason, message| {
            flag.store(true, Ordering::Release);
            program.call(if matches!(reason, wgpu::DeviceLostReason::Destroyed) { 2 } else { 1 }, &message);
        });
    }
    Ok(Device { device, queue, lost, errors })
}

/// Answers before it returns.
#[no_mangle]
pub unsafe extern "C" fn wgpuAdapterRequestDevice(
    adapter: *const wgpu::Adapter,
    descriptor: *const abi::DeviceDescriptor,
    answer: abi::CallbackInfo<abi::DeviceCallback>,
) -> abi::Future {
    let opened = open(&*adapter, descriptor.as_ref());
    let Some(callback) = answer.callback else { return abi::Future { id: 0 } };
    match opened {
        Ok(device) => {
            let device = handle::new(device);
            callback(abi::SUCCESS, device, abi::StringView::EMPTY, answer.userdata1, answer.userdata2)
        }
        Err(why) => {
            callback(abi::FAILED, std::ptr::null(), abi::StringView::of(&why), answer.userdata1, answer.userdata2)
        }
    }
    abi::Future { id: 0 }
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceDestroy(device: *const Device) {
    (*device).lost.store(true, Ordering::Release);
    (*device).device.destroy();
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceGetQueue(device: *const Device) -> *const wgpu::Queue {
    handle::new((*device).queue.clone())
}

/// Submissions by number, as long as nobody has waited for them: wgpu's own names for them cannot be written down.
fn submissions() -> &'static Mutex<BTreeMap<u64, wgpu::SubmissionIndex>> {
    static ALL: OnceLock<Mutex<BTreeMap<u64, wgpu::SubmissionIndex>>> = OnceLock::new();
    ALL.get_or_init(Default::default)
}
/// More than any program has in flight: older ones are done, or a later one is waited for in their place.
const MOST_SUBMISSIONS: usize = 4096;

#[no_mangle]
pub unsafe extern "C" fn wgpuQueueSubmitForIndex(
    queue: *const wgpu::Queue,
    count: usize,
    commands: *const *const Commands,
) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let buffers = (0..count).filter_map(|i| (**commands.add(i)).take());
    let index = (*queue).submit(buffers);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut all = submissions().lock().unwrap();
    all.insert(number, index);
    while all.len() > MOST_SUBMISSIONS {
        all.pop_first();
    }
    number
}

/// True if the queue is empty. `submission` null: everything so far is waited for.
#[no_mangle]
pub unsafe extern "C" fn wgpuDevicePoll(device: *const Device, wait: u32, submission: *const u64) -> u32 {
    let device = &(*device).device;
    let how = if wait == 0 {
        wgpu::PollType::Poll
    } else {
        let index = submission.as_ref().and_then(|number| submissions().lock().unwrap().remove(number));
        wgpu::PollType::Wait { submission_index: index, timeout: None }
    };
    matches!(device.poll(how), Ok(wgpu::PollStatus::QueueEmpty)).into()
}

#[no_mangle]
pub unsafe extern "C" fn wgpuQueueGetTimestampPeriod(queue: *const wgpu::Queue) -> f32 {
    (*queue).get_timestamp_period()
}
