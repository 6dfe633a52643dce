// Replaces CUDA's header of this name, which nccl.h includes without using it.
#pragma once
