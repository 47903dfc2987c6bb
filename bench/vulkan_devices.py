#!/usr/bin/env python3
"""Lists what Vulkan finds here, one device a line; needs nothing but the loader, libvulkan.so.1.

Exit status: 0 there is a GPU, 1 there are only software devices, 2 there is none, 3 there is no loader.
"""

import ctypes
import os
import sys

TYPES = ["other", "integrated GPU", "discrete GPU", "virtual GPU", "software"]  # of VkPhysicalDeviceType
GPUS = (1, 2, 3)
NVIDIA = 0x10DE
# VkPhysicalDeviceProperties: five 32-bit numbers, the name in 256 bytes, then limits; 824 bytes in all.
PROPERTIES = 2048


def version(number: int, vendor: int = 0) -> str:
    if vendor == NVIDIA:  # has a layout of its own
        return f"{number >> 22}.{number >> 14 & 0xFF}.{number >> 6 & 0xFF}"
    return f"{number >> 22 & 0x7F}.{number >> 12 & 0x3FF}.{number & 0xFFF}"


def devices(vulkan: ctypes.CDLL) -> list[tuple[str, int]]:
    # VkInstanceCreateInfo: its type is 1, everything else is empty.
    create_info = (ctypes.c_uint64 * 8)(1)
    instance = ctypes.c_void_p()
    if vulkan.vkCreateInstance(create_info, None, ctypes.byref(instance)) != 0:
        return []
    count = ctypes.c_uint32()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    found = []
    for handle in handles[: count.value]:
        raw = ctypes.create_string_buffer(PROPERTIES)
        vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), raw)
        api, driver, vendor, _, kind = (int.from_bytes(raw[i : i + 4], sys.byteorder) for i in range(0, 20, 4))
        name = raw[20:276].split(b"\0")[0].decode(errors="replace")
        kind_name = TYPES[kind] if kind < len(TYPES) else "unknown"
        found.append((f"{name}: {kind_name}, Vulkan {version(api)}, driver {version(driver, vendor)}", kind))
    return found


def main() -> int:
    try:
        vulkan = ctypes.CDLL("libvulkan.so.1")
    except OSError as error:
        print(f"no Vulkan loader: {error}")
        return 3
    found = devices(vulkan)
    for line, _ in found:
        print(line)
    sys.stdout.flush()
    status = 0 if any(kind in GPUS for _, kind in found) else 1 if found else 2
    os._exit(status)  # some drivers' own clean-up takes seconds or fails


if __name__ == "__main__":
    sys.exit(main())
