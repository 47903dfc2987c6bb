// What most tests include, parsed once for each program.
#pragma once

#include <gtest/gtest.h>

#include "room.h"
