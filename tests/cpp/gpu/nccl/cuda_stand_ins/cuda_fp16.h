// Stands in for CUDA's header of that name; nccl.h includes it and uses nothing of it.
#pragma once
