// What a driver may refuse: with LD_PRELOAD, functions of Vulkan that Kompute calls give the result that REFUSE names, as
// in REFUSE="vkAllocateMemory=-2". REFUSE_AFTER=2 lets two calls pass before each that is refused, REFUSE_ONCE=1 all
// behind the first; they are read at each call.
// `alive` counts what was made and not destroyed, `looked` how often the state of a fence was asked for. TRACE=1 prints what is recorded, in its order.
// UNCACHED=1 has the device list, before its types of memory, the first of them without HOST_CACHED.
// LEFT=100 has VK_EXT_memory_budget say that 100 bytes of every heap are left, and LEFT= that there is no such extension.
// DISCRETE=1 has the device be a discrete GPU, as Kompute sees it.
// PORTABLE=1 has the device offer VK_KHR_portability_subset; what is enabled is printed, and kept from the driver.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A function has at most so many words as arguments, all in registers, but for those that are declared by themselves.
typedef uintptr_t W;
#define PARAMETERS W a, W b, W c, W d, W e, W f
#define ARGUMENTS a, b, c, d, e, f
typedef int (*Function)(PARAMETERS);

long alive = 0, looked = 0;
static long passed = 0, refused_calls = 0;

static void *real(const char *name) {
    return dlsym(dlopen("libvulkan.so.1", RTLD_NOW), name);
}

static int refusal(const char *name) {
    const char *refused = getenv("REFUSE"), *after = getenv("REFUSE_AFTER");
    size_t size = strlen(name);
    if (!refused) passed = refused_calls = 0;
    if (!refused || strncmp(refused, name, size) || refused[size] != '=') return 0;
    if (after && passed++ < atoi(after)) return 0;
    passed = 0;
    if (getenv("REFUSE_ONCE") && refused_calls++) return 0;
    return atoi(refused + size + 1);
}

#define REFUSES(name, made)                                      \
    int name(PARAMETERS) {                                       \
        int result = refusal(#name);                             \
        if (!result) result = ((Function)real(#name))(ARGUMENTS); \
        if (!result) alive += made;                              \
        return result;                                           \
    }

REFUSES(vkCreateInstance, 1)
REFUSES(vkCreateBuffer, 1)
REFUSES(vkBindBufferMemory, 0)
REFUSES(vkMapMemory, 0)
REFUSES(vkCreateDescriptorPool, 1)
REFUSES(vkCreateDescriptorSetLayout, 1)
REFUSES(vkAllocateDescriptorSets, 0)
REFUSES(vkCreateShaderModule, 1)
REFUSES(vkCreatePipelineLayout, 1)
REFUSES(vkCreatePipelineCache, 1)
REFUSES(vkCreateComputePipelines, 1)
REFUSES(vkCreateCommandPool, 1)
REFUSES(vkAllocateCommandBuffers, 1)
REFUSES(vkBeginCommandBuffer, 0)
REFUSES(vkEndCommandBuffer, 0)
REFUSES(vkCreateFence, 1)
REFUSES(vkResetFences, 0)
REFUSES(vkQueueSubmit, 0)

int vkGetFenceStatus(PARAMETERS) {
    int result = refusal("vkGetFenceStatus");
    looked++;
    return result ? result : ((Function)real("vkGetFenceStatus"))(ARGUMENTS);
}

void vkGetPhysicalDeviceProperties(W device, uint32_t *properties) {
    ((void (*)(W, uint32_t *))real("vkGetPhysicalDeviceProperties"))(device, properties);
    if (getenv("DISCRETE")) properties[4] = 2; // deviceType
}

typedef struct {
    int type;
    const void *next;
    uint32_t flags, queue_count;
    W queues, layer_count, layers;
    uint32_t count;
    const char *const *extensions;
    W features;
} Opening;

int vkCreateDevice(W device, const Opening *asked, W allocator, W made) {
    Opening info = *asked;
    for (uint32_t i = 0; getenv("PORTABLE") && i < asked->count; i++) puts(asked->extensions[i]), info.count = 0;
    int result = refusal("vkCreateDevice");
    if (!result) result = ((Function)real("vkCreateDevice"))(device, (W)&info, allocator, made, 0, 0);
    if (!result) alive++;
    return result;
}

typedef struct {
    int type;
    const void *next;
    W size;
    uint32_t memory_type;
} Allocation;

int vkAllocateMemory(W device, const Allocation *asked, W allocator, W memory) {
    Allocation info = *asked;
    if (getenv("UNCACHED")) {
        printf("memory type %u\n", info.memory_type), fflush(stdout);
        info.memory_type -= info.memory_type > 0;
    }
    int result = refusal("vkAllocateMemory");
    if (!result) result = ((Function)real("vkAllocateMemory"))(device, (W)&info, allocator, memory, 0, 0);
    if (!result) alive++;
    return result;
}

// `object` is the parameter that may be VK_NULL_HANDLE.
#define DESTROYS(name, object)                 \
    void name(PARAMETERS) {                    \
        alive -= (object) != 0;                \
        ((Function)real(#name))(ARGUMENTS);    \
    }

DESTROYS(vkDestroyInstance, a)
DESTROYS(vkDestroyDevice, a)
DESTROYS(vkDestroyBuffer, b)
DESTROYS(vkFreeMemory, b)
DESTROYS(vkDestroyDescriptorPool, b)
DESTROYS(vkDestroyDescriptorSetLayout, b)
DESTROYS(vkDestroyShaderModule, b)
DESTROYS(vkDestroyPipelineLayout, b)
DESTROYS(vkDestroyPipelineCache, b)
DESTROYS(vkDestroyPipeline, b)
DESTROYS(vkDestroyCommandPool, b)
DESTROYS(vkFreeCommandBuffers, *(W *)d)
DESTROYS(vkDestroyFence, b)

// What is recorded

static int traced(void) {
    return getenv("TRACE") != NULL;
}

void vkCmdDispatch(PARAMETERS) {
    if (traced()) puts("dispatch"), fflush(stdout);
    ((Function)real("vkCmdDispatch"))(ARGUMENTS);
}

void vkCmdCopyBuffer(PARAMETERS) {
    if (traced()) printf("copy %#lx %#lx\n", b, c), fflush(stdout);
    ((Function)real("vkCmdCopyBuffer"))(ARGUMENTS);
}

typedef struct {
    int type;
    const void *next;
    uint32_t from, to, families[2];
    W buffer, offset, size;
} Barrier;

typedef void (*PipelineBarrier)(W, uint32_t, uint32_t, uint32_t, uint32_t, W, uint32_t, const Barrier *, uint32_t, W);

void vkCmdPipelineBarrier(W commands, uint32_t before, uint32_t behind, uint32_t flags, uint32_t memories, W memory,
                          uint32_t count, const Barrier *barriers, uint32_t images, W image) {
    for (uint32_t i = 0; traced() && i < count; i++)
        printf("barrier %#x %#x %#x %#x %#lx\n", before, behind, barriers[i].from, barriers[i].to, barriers[i].buffer),
            fflush(stdout);
    ((PipelineBarrier)real("vkCmdPipelineBarrier"))(commands, before, behind, flags, memories, memory, count, barriers,
                                                    images, image);
}

// Types of memory

typedef struct {
    uint32_t count;
    struct {
        uint32_t flags, heap;
    } types[32];
} Memory;

void vkGetPhysicalDeviceMemoryProperties(W device, Memory *memory) {
    ((Function)real("vkGetPhysicalDeviceMemoryProperties"))(device, (W)memory, 0, 0, 0, 0);
    if (!getenv("UNCACHED")) return;
    memmove(memory->types + 1, memory->types, memory->count++ * sizeof *memory->types);
    memory->types[0].flags &= ~8;
}

void vkGetBufferMemoryRequirements(W device, W buffer, W *size_alignment_types) {
    ((Function)real("vkGetBufferMemoryRequirements"))(device, buffer, (W)size_alignment_types, 0, 0, 0);
    uint32_t *types = (uint32_t *)(size_alignment_types + 2);
    if (getenv("UNCACHED")) *types = *types << 1 | 1;
}

// Extensions

typedef struct {
    char name[256];
    uint32_t version;
} Extension;

int vkEnumerateDeviceExtensionProperties(W device, W layer, uint32_t *count, Extension *extensions) {
    const char *left = getenv("LEFT"), *only = getenv("PORTABLE") ? "VK_KHR_portability_subset" : "VK_EXT_memory_budget";
    if (!left && !getenv("PORTABLE"))
        return ((Function)real("vkEnumerateDeviceExtensionProperties"))(device, layer, (W)count, (W)extensions, 0, 0);
    *count = !left || *left;
    if (extensions && *count) strcpy(extensions->name, only);
    return 0;
}

typedef struct {
    int type;
    const void *next;
    uint64_t budget[16], usage[16];
} Budget;

void vkGetPhysicalDeviceMemoryProperties2(PARAMETERS) {
    Budget **asked = (Budget **)(b + 8), *budget = *asked;
    // SwiftShader does not know it, and prints so.
    if (getenv("LEFT")) *asked = NULL;
    ((Function)real("vkGetPhysicalDeviceMemoryProperties2"))(ARGUMENTS);
    *asked = budget;
    for (int i = 0; getenv("LEFT") && i < 16; i++)
        budget->usage[i] = 1 << 20, budget->budget[i] = (1 << 20) + strtoull(getenv("LEFT"), NULL, 10);
}
