//! Recording: encoders, passes, copies, timestamps.
use crate::abi;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::handle;
use std::sync::Mutex;

// What ends takes the value out; what comes after that does nothing.
pub struct Encoder(Mutex<Option<wgpu::CommandEncoder>>);
pub struct Pass(Mutex<Option<wgpu::ComputePass<'static>>>);
pub struct Commands(Mutex<Option<wgpu::CommandBuffer>>);

impl Commands {
    pub fn take(&self) -> Option<wgpu::CommandBuffer> {
        self.0.lock().unwrap().take()
    }
}

impl Encoder {
    fn with(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
        if let Some(encoder) = self.0.lock().unwrap().as_mut() {
            record(encoder);
        }
    }
}

impl Pass {
    fn with(&self, record: impl FnOnce(&mut wgpu::ComputePass<'static>)) {
        if let Some(pass) = self.0.lock().unwrap().as_mut() {
            record(pass);
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateCommandEncoder(
    device: *const Device,
    _descriptor: *const abi::Labelled,
) -> *const Encoder {
    let encoder = (*device).device.create_command_encoder(&Default::default());
    handle::new(Encoder(Mutex::new(Some(encoder))))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuCommandEncoderFinish(
    encoder: *const Encoder,
    _descriptor: *const abi::Labelled,
) -> *const Commands {
    let finished = (*encoder).0.lock().unwrap().take().map(wgpu::CommandEncoder::finish);
    handle::new(Commands(Mutex::new(finished)))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuCommandEncoderCopyBufferToBuffer(
    encoder: *const Encoder,
    from: *const Buffer,
    from_offset: u64,
    to: *const Buffer,
    to_offset: u64,
    size: u64,
) {
    (*encoder).with(|e| {
        e.copy_buffer_to_buffer(&(*from).buffer, from_offset, &(*to).buffer, to_offset, Some(size));
    });
}

#[no_mangle]
pub unsafe extern "C" fn wgpuCommandEncoderResolveQuerySet(
    encoder: *const Encoder,
    set: *const wgpu::QuerySet,
    first: u32,
    count: u32,
    to: *const Buffer,
    offset: u64,
) {
    (*encoder).with(|e| e.resolve_query_set(&*set, first..first + count, &(*to).buffer, offset));
}

#[no_mangle]
pub unsafe extern "C" fn wgpuCommandEncoderBeginComputePass(
    encoder: *const Encoder,
    descriptor: *const abi::PassDescriptor,
) -> *const Pass {
    let place = |index: u32| (index != u32::MAX).then_some(index);
    let times = descriptor.as_ref().and_then(|d| d.timestamps.as_ref());
    let timestamp_writes = times.map(|t| wgpu::ComputePassTimestampWrites {
        query_set: &*t.set,
        beginning_of_pass_write_index: place(t.begin),
        end_of_pass_write_index: place(t.end),
    });
    let mut pass = None;
    (*encoder).with(|e| {
        let described = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        pass = Some(e.begin_compute_pass(&described).forget_lifetime());
    });
    handle::new(Pass(Mutex::new(pass)))
}

#[no_mangle]
pub unsafe extern "C" fn wgpuComputePassEncoderEnd(pass: *const Pass) {
    drop((*pass).0.lock().unwrap().take());
}

#[no_mangle]
pub unsafe extern "C" fn wgpuComputePassEncoderSetPipeline(pass: *const Pass, pipeline: *const wgpu::ComputePipeline) {
    (*pass).with(|p| p.set_pipeline(&*pipeline));
}

#[no_mangle]
pub unsafe extern "C" fn wgpuComputePassEncoderSetBindGroup(
    pass: *const Pass,
    index: u32,
    group: *const wgpu::BindGroup,
    offset_count: usize,
    offsets: *const u32,
) {
    let offsets = if offset_count == 0 { &[][..] } else { std::slice::from_raw_parts(offsets, offset_count) };
    (*pass).with(|p| p.set_bind_group(index, group.as_ref(), offsets));
}

#[no_mangle]
pub unsafe extern "C" fn wgpuComputePassEncoderDispatchWorkgroups(pass: *const Pass, x: u32, y: u32, z: u32) {
    (*pass).with(|p| p.dispatch_workgroups(x, y, z));
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateQuerySet(
    device: *const Device,
    descriptor: *const abi::QuerySetDescriptor,
) -> *const wgpu::QuerySet {
    let given = &*descriptor;
    handle::new((*device).device.create_query_set(&wgpu::QuerySetDescriptor {
        label: None,
        ty: if given.kind == 2 { wgpu::QueryType::Timestamp } else { wgpu::QueryType::Occlusion },
        count: given.count,
    }))
}
