//! Buffers: made, written, mapped.
use crate::abi;
use crate::device::Device;
use crate::handle;
use std::ffi::c_void;
use std::sync::Mutex;

pub struct Buffer {
    pub buffer: wgpu::Buffer,
    views: Mutex<Vec<View>>, // of mapped memory, until it is unmapped
}

enum View {
    Read { _view: wgpu::BufferView },
    Write { _view: wgpu::BufferViewMut },
}

#[no_mangle]
pub unsafe extern "C" fn wgpuDeviceCreateBuffer(
    device: *const Device,
    descriptor: *const abi::BufferDescriptor,
) -> *const Buffer {
    let given = &*descriptor;
    let label = given.label.to_text();
    // The header's bits are wgpu's.
    let usage = wgpu::BufferUsages::from_bits_truncate(given.usage as u32);
    let buffer = (*device).device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(&label),
        size: given.size,
        usage,
        mapped_at_creation: given.mapped_at_creation != 0,
    });
    (*device).tell_if_lost();
    handle::new(Buffer { buffer, views: Mutex::default() })
}

#[no_mangle]
pub unsafe extern "C" fn wgpuBufferGetMappedRange(buffer: *const Buffer, offset: usize, size: usize) -> *mut c_void {
    let mut view = (*buffer).buffer.get_mapped_range_mut(offset as u64..(offset + size) as u64);
    let start = view.slice(..).as_raw_element_ptr().as_ptr().cast();
    (*buffer).views.lock().unwrap().push(View::Write { _view: view });
    start
}

#[no_mangle]
pub unsafe extern "C" fn wgpuBufferGetConstMappedRange(
    buffer: *const Buffer,
    offset: usize,
    size: usize,
) -> *const c_void {
    let view = (*buffer).buffer.get_mapped_range(offset as u64..(offset + size) as u64);
    let start = view.as_ptr().cast();
    (*buffer).views.lock().unwrap().push(View::Read { _view: view });
    start
}

#[no_mangle]
pub unsafe extern "C" fn wgpuBufferUnmap(buffer: *const Buffer) {
    (*buffer).views.lock().unwrap().clear();
    (*buffer).buffer.unmap();
}

struct Answer {
    callback: abi::MapCallback,
    data: [*mut c_void; 2],
}
unsafe impl Send for Answer {}

impl Answer {
    fn call(self, worked: bool) {
        let status = if worked { abi::SUCCESS } else { abi::FAILED };
        unsafe { (self.callback)(status, abi::StringView::EMPTY, self.data[0], self.data[1]) }
    }
}

#[no_mangle]
pub unsafe extern "C" fn wgpuBufferMapAsync(
    buffer: *const Buffer,
    mode: u64,
    offset: usize,
    size: usize,
    answer: abi::CallbackInfo<abi::MapCallback>,
) -> abi::Future {
    let mode = if mode & 1 != 0 { wgpu::MapMode::Read } else { wgpu::MapMode::Write };
    let program = answer.callback.map(|callback| Answer { callback, data: [answer.userdata1, answer.userdata2] });
    (*buffer).buffer.map_async(mode, offset as u64..(offset + size) as u64, move |result| {
        if let Some(program) = program {
            program.call(result.is_ok());
        }
    });
    abi::Future { id: 0 }
}

#[no_mangle]
pub unsafe extern "C" fn wgpuQueueWriteBuffer(
    queue: *const wgpu::Queue,
    buffer: *const Buffer,
    offset: u64,
    data: *const u8,
    size: usize,
) {
    if size > 0 {
        (*queue).write_buffer(&(*buffer).buffer, offset, std::slice::from_raw_parts(data, size));
    }
}
